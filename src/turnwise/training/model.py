"""What a run starts from and what it ends in: an encoder, or a re-ranker where an objective trains a head of one."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import cast

from torch import nn

from turnwise.corpus.slots.template import SlotMarks
from turnwise.models.backbone.inputs import WINDOW, RerankerTask
from turnwise.models.backbone.source import locate_model
from turnwise.models.encoder import Encoder
from turnwise.models.reranker import Reranker, is_reranker
from turnwise.objectives.objective import Objective
from turnwise.objectives.response_selection import ResponseSelection
from turnwise.objectives.utterance_manipulation import UtteranceManipulation
from turnwise.training import TrainingError
from turnwise.training.recipe import Recipe

#: What training gives.
Model = Encoder | Reranker

#: The heads of a re-ranker that training starts from, by their tasks.
Heads = Mapping[str, nn.Module]


def start(
    recipe: Recipe, place: str | Path, objectives: Mapping[str, Objective], marks: SlotMarks | None
) -> tuple[Encoder, Heads]:
    """What is trained, with the special tokens and the dropout that the recipe wants; and the heads, if it is a re-ranker's.

    Args:
        recipe: the run's.
        place: a folder of an encoder, a re-ranker or a backbone; 'minilm'; a Hugging Face id.
        objectives: the recipe's, made.
        marks: what stands for slots in templates, where an objective reads them.

    Raises:
        TrainingError: if the objectives join turns in different ways.
    """
    encoder, heads = _load(recipe, place)
    if recipe.layers is not None:
        encoder.backbone.keep_layers(recipe.layers)
    tokens = tuple(dict.fromkeys(token for objective in objectives.values() for token in objective.special_tokens))
    styles = {objective.style for objective in objectives.values()}
    if len(styles) > 1:
        raise TrainingError(
            "objectives of one run must join turns in one way; these mix [SYS]/[USR] marks and separators"
        )
    if marks is not None:
        encoder.marks = marks
        tokens += marks.tokens
    if tokens:
        encoder.backbone.add_tokens(tokens)
    encoder.style = styles.pop()
    if recipe.dropout is not None or recipe.attention_dropout is not None:
        encoder.backbone.set_dropout(recipe.dropout, recipe.attention_dropout)
    return encoder, heads


def _load(recipe: Recipe, place: str | Path) -> tuple[Encoder, Heads]:
    folder = locate_model(place)
    heads: Heads = {}
    if is_reranker(folder):
        reranker = Reranker.load(folder, device="cpu")
        encoder, heads = Encoder(reranker.backbone, recipe.pooling or "mean"), dict(reranker.heads.items())
    else:
        encoder = Encoder.load(folder, device="cpu", pooling=recipe.pooling)
    for parameter in encoder.parameters():  # laid out for a CPU to read; optimisers want what checkpoints give back
        parameter.data = parameter.data.contiguous()
    return encoder, heads


def take_head(head: nn.Module, objective: Objective, heads: Heads) -> None:
    """Has a new head go on from that of the re-ranker that training starts from, if it has one of this task."""
    if objective.task is not None and objective.task in heads:
        _scores(head).load_state_dict(heads[objective.task].state_dict())


def model_of(encoder: Encoder, trained: Iterable[tuple[Objective, nn.Module]]) -> Model:
    """What a run's encoder and its heads are to a user; weights are shared, not copied."""
    parts = [(objective, head) for objective, head in trained if objective.task is not None]
    if not parts:
        return encoder
    heads = {cast(RerankerTask, objective.task): _scores(head) for objective, head in parts}
    (longest,) = [objective.length for objective, _ in parts if isinstance(objective, ResponseSelection)]
    windows = [objective.window for objective, _ in parts if isinstance(objective, UtteranceManipulation)]
    reranker = Reranker(encoder.backbone, heads, longest, max(windows, default=WINDOW))
    return reranker.train(encoder.training)


def _scores(head: nn.Module) -> nn.Linear:
    """The layer of a head that stays with the model."""
    assert isinstance(head, nn.Sequential) and isinstance(head[-1], nn.Linear)
    return head[-1]
