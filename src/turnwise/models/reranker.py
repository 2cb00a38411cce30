"""The re-ranker: a cross-encoder that scores candidates for the next turn of a conversation.

Trained with UMS (Whang et al., 2021), it also has heads for coherence: which turn is out of place, where a turn
belongs, which turn precedes another. It is saved as a folder that sentence-transformers' `CrossEncoder` reads, with the
other heads beside.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import cast

import numpy as np
import numpy.typing as npt
import torch
from safetensors.torch import load_file
from scipy.special import expit
from torch import nn

from turnwise.core.dialogue import Conversation, turn_texts
from turnwise.core.errors import ModelError
from turnwise.core.files import read_json, write_json, write_tensors
from turnwise.core.model_names import TURNWISE_RERANKER
from turnwise.core.progress import Progress, silent
from turnwise.core.types import Vectors
from turnwise.corpus.training_data import TrainingData
from turnwise.models.backbone.backbone import Backbone
from turnwise.models.backbone.inputs import (
    END_OF_TURN,
    WINDOW,
    AuxiliaryTask,
    Composer,
    MarkedInput,
    RerankerTask,
    marked_input,
    selection_input,
    tokenise,
)
from turnwise.models.backbone.load import choose_device, evaluation_mode, load_backbone, place
from turnwise.models.backbone.ragged import Tokens, token_batches
from turnwise.models.backbone.source import (
    DESCRIPTION_FILE,
    is_reranker,
    load_training_data,
    locate_model,
    write_dense,
    write_description,
    write_modules,
)
from turnwise.models.backbone.stream import TokenStream
from turnwise.models.coherence import PositionScores, TurnOrder, out_of_place_scores, placement_scores, predict_orders
from turnwise.models.identity import digest_model, tokenizer_text
from turnwise.models.trainable_encoder import default_batch_tokens

_HEADS_FILE = "heads.safetensors"


@dataclass(frozen=True, slots=True)
class RankedCandidate:
    """A candidate with its index among the given ones, and its score."""

    index: int
    text: str
    score: float


class Reranker(nn.Module):
    """Scores candidates for the next turn of a conversation.

    Attributes:
        backbone: the transformer.
        heads: linear layers from a token state to one number, by task.
        max_length: tokens of a conversation and a candidate together, including special ones.
        window: utterances that the heads for insertion, deletion and search were trained to see together.
        training_data: what is known of the texts that it was trained on; None: nothing.
    """

    def __init__(
        self,
        backbone: Backbone,
        heads: dict[RerankerTask, nn.Linear],
        max_length: int | None = None,
        window: int = WINDOW,
    ):
        super().__init__()
        self.backbone = backbone
        self.heads = nn.ModuleDict({str(task): head for task, head in heads.items()})
        self.max_length = min(max_length or backbone.max_length, backbone.max_length)
        self.window = window
        self.training_data: TrainingData | None = None

    @property
    def composer(self) -> Composer:
        """Composes the token sequences of this re-ranker."""
        return Composer.of(self.backbone.tokenizer)

    def score(self, context: Conversation, candidates: Sequence[str]) -> npt.NDArray[np.float64]:
        """Return the probability (candidates,) that each candidate is the next turn of a conversation.

        `context` is the conversation so far, newest turn last; it is truncated at its head if it is too long.
        """
        return self.score_all([(context, candidates)])[0]

    def score_all(
        self,
        queries: Sequence[tuple[Conversation, Sequence[str]]],
        *,
        batch_tokens: int | None = None,
        progress: Progress = silent,
    ) -> list[npt.NDArray[np.float64]]:
        """Return what `score` returns for many conversations, each with its own candidates."""
        logits = self.logits("selection", self.build_inputs(queries), batch_tokens=batch_tokens, progress=progress)
        # double precision distinguishes scores near 1
        scores = iter(expit(np.concatenate(logits).astype(np.float64)) if logits else [])
        return [np.fromiter(scores, np.float64, len(candidates)) for _, candidates in queries]

    def rank(self, context: Conversation, candidates: Sequence[str], top: int | None = None) -> list[RankedCandidate]:
        """Return the `top` candidates (None: all), best first; of equal scores the first given comes first."""
        scores = self.score(context, candidates)
        order = np.argsort(-scores, kind="stable")[:top]
        return [RankedCandidate(int(index), candidates[index], float(scores[index])) for index in order]

    def mark_texts(self, task: AuxiliaryTask, queries: Sequence[tuple[Sequence[str], str | None]]) -> list[MarkedInput]:
        """Return the inputs for turns, each with a target if the task has one."""
        tokens = self.tokenise([text for turns, target in queries for text in (*turns, target) if text is not None])
        composer, inputs = self.composer, []
        for turns, target in queries:
            target_tokens = None if target is None else tokens[target]
            turn_tokens = [tokens[text] for text in turns]
            inputs.append(marked_input(composer, task, turn_tokens, target_tokens, self.max_length))
        return inputs

    def build_inputs(self, queries: Sequence[tuple[Conversation, Sequence[str]]]) -> list[MarkedInput]:
        """Return the input of each candidate of each conversation; every text is tokenised once."""
        if any(isinstance(candidates, str) for _, candidates in queries):
            raise ValueError("candidates are a list of texts: give a single one as [text]")
        histories = [turn_texts(context) for context, _ in queries]
        tokens = self.tokenise(list(chain(*histories, *(candidates for _, candidates in queries))))
        composer = self.composer
        return [
            selection_input(composer, [tokens[text] for text in history], tokens[candidate], self.max_length)
            for history, (_, candidates) in zip(histories, queries, strict=True)
            for candidate in candidates
        ]

    def tokenise(self, texts: Sequence[str]) -> dict[str, Tokens]:
        """Return the tokens of each distinct text."""
        distinct = list(dict.fromkeys(texts))
        return dict(zip(distinct, tokenise(self.backbone.tokenizer, distinct), strict=True))

    def logits(
        self,
        task: RerankerTask,
        marked: Sequence[MarkedInput],
        *,
        batch_tokens: int | None = None,
        progress: Progress = silent,
    ) -> list[Vectors]:
        """Return a head's output at the marked positions of each sequence (positions,); see `score_all`."""
        if task not in self.heads:
            raise ModelError(f"this re-ranker was trained without {task}: see `turnwise train ums`")
        return [values[:, 0] for values in self._run(marked, self.heads[task], batch_tokens, progress)]

    def states(self, marked: Sequence[MarkedInput]) -> list[Vectors]:
        """Return the states at the marked positions of each sequence (positions, hidden), which heads read."""
        return self._run(marked, nn.Identity(), None, silent)

    def _run(
        self, marked: Sequence[MarkedInput], head: nn.Module, batch_tokens: int | None, progress: Progress
    ) -> list[Vectors]:
        """Return the output of a module on the states at the marked positions of each sequence."""
        lengths = np.array([len(each.tokens) for each in marked], np.int64)
        order = np.argsort(lengths, kind="stable")
        outputs: list[Vectors] = [np.empty((0, 1), np.float32)] * len(marked)
        with evaluation_mode(self), torch.inference_mode():
            for start, end in token_batches(lengths[order], batch_tokens or default_batch_tokens(self.backbone)):
                batch = [marked[row] for row in order[start:end]]
                stream = TokenStream.of([each.tokens for each in batch], [each.segments for each in batch])
                places = [first + each.positions for first, each in zip(stream.starts().tolist(), batch, strict=False)]
                values = head(self.backbone.states_at(stream, np.concatenate(places))).float().cpu().numpy()
                own = np.split(values, np.cumsum([len(each) for each in places])[:-1])
                for row, output in zip(order[start:end], own, strict=True):
                    outputs[row] = output
                progress("scoring", end, len(marked))
        return outputs

    def out_of_place(self, dialogue: Conversation) -> PositionScores:
        """Return the probability that each turn of a conversation of two or more turns is out of place."""
        return out_of_place_scores(self, [dialogue])[0]

    def place(self, dialogue: Conversation, utterance: str) -> PositionScores:
        """Return the probability that an utterance belongs before each turn, and after the last."""
        return placement_scores(self, [(dialogue, utterance)])[0]

    def order(self, dialogue: Conversation) -> TurnOrder:
        """Return the most likely order of two or more turns, whatever the order in which they are given."""
        return predict_orders(self, [dialogue])[0]

    @classmethod
    def load(cls, name: str | Path, *, device: str | torch.device | None = None) -> "Reranker":
        """Load a re-ranker: 'turnwise-reranker', a folder of `save` or `turnwise train`, or a Hugging Face id."""
        folder = locate_model(name)
        if not is_reranker(folder):
            raise ModelError(f"{name} is not a turnwise re-ranker: train one, or load '{TURNWISE_RERANKER}'")
        settings = read_json(folder / DESCRIPTION_FILE)
        backbone = load_backbone(folder)
        weights = load_file(folder / _HEADS_FILE)
        heads: dict[RerankerTask, nn.Linear] = {}
        for task in settings["heads"]:
            heads[task] = nn.Linear(backbone.hidden, 1)
            heads[task].load_state_dict({key: weights[f"{task}.{key}"] for key in ("weight", "bias")})
        reranker = cls(backbone, heads, settings["max_length"], settings["window"])
        reranker.training_data = load_training_data(folder)
        return place(reranker, backbone, choose_device(device))

    def save(self, folder: Path | str, card: str | None = None) -> None:
        """Write a sentence-transformers folder, which `CrossEncoder(folder)` and `Reranker.load` both read.

        A `CrossEncoder` takes a conversation as one text: see `pair_text`. `card` is the model card, as Markdown.
        """
        if "selection" not in self.heads:
            raise ModelError("a re-ranker without a head for selection cannot be saved")
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        self.backbone.save_transformer(folder, self.max_length)
        # a CrossEncoder is to cut a conversation's head, too, and to distinguish segments
        tokenizer = {**read_json(folder / "tokenizer_config.json"), "truncation_side": "left"}
        if self.backbone.has_segments:
            tokenizer["model_input_names"] = ["input_ids", "token_type_ids", "attention_mask"]
        write_json(folder / "tokenizer_config.json", tokenizer)
        # the modules of a CrossEncoder: transformer, the first token's state, the head for selection
        pooling, dense = "sentence_transformer.modules.pooling.Pooling", "base.modules.dense.Dense"
        write_modules(folder, ["base.modules.transformer.Transformer", pooling, dense])
        kind = {"model_type": "CrossEncoder", "activation_fn": "torch.nn.modules.activation.Sigmoid", "prompts": {}}
        write_json(folder / "config_sentence_transformers.json", kind)
        first_token = {"embedding_dimension": self.backbone.hidden, "pooling_mode": "cls"}
        write_json(folder / "1_Pooling" / "config.json", first_token)
        names = {"module_input_name": "sentence_embedding", "module_output_name": "scores"}
        write_dense(folder / "2_Dense", cast("nn.Linear", self.heads["selection"]), "linear.Identity", **names)
        heads = {key: value.contiguous() for key, value in self.heads.state_dict().items()}
        write_tensors(folder / _HEADS_FILE, heads)
        settings = {"kind": "reranker", "heads": list(self.heads), "max_length": self.max_length, "window": self.window}
        write_description(folder, settings, self.training_data, card)


def pair_text(context: Conversation, candidate: str) -> tuple[str, str]:
    """Return a conversation and a candidate as the two texts that a sentence-transformers `CrossEncoder` takes."""
    return "".join(text + END_OF_TURN for text in turn_texts(context)), candidate + END_OF_TURN


def reranker_fingerprint(reranker: Reranker) -> str:
    """Return a hash of all that determines a re-ranker's scores: weights, heads, vocabulary, lengths."""
    settings = (sorted(reranker.heads), reranker.max_length, reranker.window)
    backbone = reranker.backbone
    return digest_model(reranker, repr(settings), backbone.configuration(), tokenizer_text(backbone.tokenizer))
