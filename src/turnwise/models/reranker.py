"""The re-ranker a user holds: how well candidates go on from a conversation, read together with it.

Trained by UMS (Whang et al., 2021), it also has heads that see which turn of a conversation does not belong, where one belongs, and
which came before another. It is saved as a folder that sentence-transformers' `CrossEncoder` reads, with the other heads beside.
"""

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from safetensors.torch import load_file, save_file
from scipy.special import expit
from torch import nn

from turnwise.core.dialogue import Conversation, turn_texts
from turnwise.core.files import read_json, write_json
from turnwise.core.progress import Progress, silent
from turnwise.models.backbone.backbone import Backbone
from turnwise.models.backbone.inputs import (
    END_OF_TURN,
    WINDOW,
    Composer,
    MarkedInput,
    RerankerTask,
    selection_input,
    tokenise,
)
from turnwise.models.backbone.source import BackboneError, locate_model
from turnwise.models.backbone.stream import Tokens, TokenStream, token_batches
from turnwise.models.coherence import PositionScores, TurnOrder, out_of_place_scores, placement_scores, predict_orders
from turnwise.models.encoder import BATCH_TOKENS, COMPRESSION
from turnwise.version import __version__

_DESCRIPTION = "turnwise.json"
_HEADS = "heads.safetensors"
_SELECTION = "2_Dense"


@dataclass(frozen=True, slots=True)
class Ranked:
    """A candidate with its place among those that were given, and its score."""

    index: int
    text: str
    score: float


class Reranker(nn.Module):
    """Scores candidates for the next turn of a conversation.

    Attributes:
        backbone: the transformer.
        heads: what looks at token states, by its task; each a linear layer to one number.
        max_length: tokens of a conversation and a candidate together, special ones included.
        window: utterances that the heads of insertion, deletion and search were trained to look at together.
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

    @property
    def composer(self) -> Composer:
        """What puts token sequences together for this re-ranker."""
        return Composer.of(self.backbone.tokenizer)

    # ---- scoring

    def score(self, context: Conversation, candidates: Sequence[str]) -> npt.NDArray[np.float64]:
        """How well each candidate goes on from a conversation: a probability for each (candidates,).

        Args:
            context: the conversation so far, newest turn last; its head is cut off where it is too long.
            candidates: what might be said next.
        """
        return self.score_all([(context, candidates)])[0]

    def score_all(
        self,
        asked: Sequence[tuple[Conversation, Sequence[str]]],
        *,
        batch_tokens: int | None = None,
        progress: Progress = silent,
    ) -> list[npt.NDArray[np.float64]]:
        """What `score` gives for many conversations, each with candidates of its own.

        Args:
            asked: conversations and candidates.
            batch_tokens: tokens of one forward pass; None: what suits the device.
            progress: told how many candidates are scored.
        """
        marked = self.build_inputs(asked)
        logits = self.logits("selection", marked, batch_tokens=batch_tokens, progress=progress)
        # in double precision a score near 1 is still told from another
        scores = iter(expit(np.concatenate(logits).astype(np.float64)) if logits else [])
        return [np.fromiter(scores, np.float64, len(candidates)) for _, candidates in asked]

    def rank(self, context: Conversation, candidates: Sequence[str], top: int | None = None) -> list[Ranked]:
        """Candidates by their score, best first; of equal ones the first given comes first.

        Args:
            context: the conversation so far, newest turn last.
            candidates: what might be said next.
            top: how many to give; None: all.
        """
        scores = self.score(context, candidates)
        order = np.argsort(-scores, kind="stable")[:top]
        return [Ranked(int(index), candidates[index], float(scores[index])) for index in order]

    def build_inputs(self, asked: Sequence[tuple[Conversation, Sequence[str]]]) -> list[MarkedInput]:
        """What is read for each candidate of each conversation; every text is tokenised once."""
        for _, candidates in asked:
            if isinstance(candidates, str):
                raise ValueError("candidates are a list of texts: give a single one as [text]")
        histories = [turn_texts(context) for context, _ in asked]
        known = self.tokenise(
            [*(text for history in histories for text in history), *(text for _, each in asked for text in each)]
        )
        composer = self.composer
        return [
            selection_input(composer, [known[text] for text in history], known[candidate], self.max_length)
            for history, (_, candidates) in zip(histories, asked, strict=True)
            for candidate in candidates
        ]

    def tokenise(self, texts: Sequence[str]) -> dict[str, Tokens]:
        """The tokens of each different text."""
        distinct = list(dict.fromkeys(texts))
        return dict(zip(distinct, tokenise(self.backbone.tokenizer, distinct), strict=True))

    def logits(
        self,
        task: RerankerTask,
        marked: Sequence[MarkedInput],
        *,
        batch_tokens: int | None = None,
        progress: Progress = silent,
    ) -> list[npt.NDArray[np.float32]]:
        """What a head says at the marked places of each sequence.

        Args:
            task: whose head.
            marked: the sequences.
            batch_tokens: tokens of one forward pass; None: what suits the device.
            progress: told how many sequences are done.

        Raises:
            BackboneError: if the re-ranker was trained without this task.
        """
        if task not in self.heads:
            raise BackboneError(
                f"this re-ranker was trained without {task}, and has {', '.join(self.heads)}: train one whose recipe has that"
                " objective, such as `turnwise train ums`"
            )
        head = self.heads[task]
        return self._looked(marked, lambda states: head(states)[:, 0], batch_tokens, progress)

    def states(
        self, marked: Sequence[MarkedInput], *, batch_tokens: int | None = None, progress: Progress = silent
    ) -> list[npt.NDArray[np.float32]]:
        """The states at the marked places of each sequence (places, hidden): what heads look at.

        Args:
            marked: the sequences.
            batch_tokens: tokens of one forward pass; None: what suits the device.
            progress: told how many sequences are done.
        """
        return self._looked(marked, lambda states: states, batch_tokens, progress)

    def _looked(
        self,
        marked: Sequence[MarkedInput],
        look: Callable[[torch.Tensor], torch.Tensor],
        batch_tokens: int | None,
        progress: Progress,
    ) -> list[npt.NDArray[np.float32]]:
        """What is made of the states at the marked places of each sequence."""
        budget = batch_tokens or BATCH_TOKENS.get(self.backbone.device.type, BATCH_TOKENS["cuda"])
        order = np.argsort([len(each.tokens) for each in marked], kind="stable")
        found: list[npt.NDArray[np.float32]] = [np.empty(0, np.float32)] * len(marked)
        was_training = self.training
        self.eval()
        try:
            done = 0
            for start, end in token_batches([len(marked[index].tokens) for index in order], budget):
                rows = order[start:end]
                for row, values in zip(rows, self._pass([marked[row] for row in rows], look), strict=True):
                    found[row] = values
                done += len(rows)
                progress("scoring", done, len(marked))
        finally:
            self.train(was_training)
        return found

    def _pass(
        self, marked: list[MarkedInput], look: Callable[[torch.Tensor], torch.Tensor]
    ) -> list[npt.NDArray[np.float32]]:
        """The same of sequences that are in order of length, in one pass."""
        stream = TokenStream.of([each.tokens for each in marked], [each.segments for each in marked])
        starts = stream.starts().numpy()
        places = np.concatenate([start + each.positions for start, each in zip(starts[:-1], marked, strict=True)])
        with torch.inference_mode():
            values: npt.NDArray[np.float32] = look(self.backbone.states_at(stream, places)).float().cpu().numpy()
        return np.split(values, np.cumsum([len(each.positions) for each in marked])[:-1])

    # ---- coherence

    def out_of_place(self, dialogue: Conversation) -> PositionScores:
        """How little each turn of a conversation of two turns or more belongs, and which one least."""
        return out_of_place_scores(self, [dialogue])[0]

    def place(self, dialogue: Conversation, utterance: str) -> PositionScores:
        """Where an utterance belongs among the turns of a conversation: a score for the gap before each, and for the one behind."""
        return placement_scores(self, [(dialogue, utterance)])[0]

    def order(self, dialogue: Conversation) -> TurnOrder:
        """In which order two turns or more were most likely said; the order in which they are given makes no difference."""
        return predict_orders(self, [dialogue])[0]

    # ---- loading and saving

    @classmethod
    def load(cls, name: str | Path, *, device: str | torch.device | None = None) -> "Reranker":
        """Loads a re-ranker from a folder that `save` or `turnwise train` wrote, or from a Hugging Face id of such a one.

        Args:
            name: which one.
            device: where to put it; None: a GPU where there is one.

        Raises:
            BackboneError: if there is no such folder, or it is no re-ranker's.
        """
        place = locate_model(name)
        if not is_reranker(place):
            raise BackboneError(f"{name} is no re-ranker of turnwise's: train one, for example by `turnwise train ums`")
        told = read_json(place / _DESCRIPTION)
        backbone = Backbone.load(place)
        backbone.tokenizer.truncation_side = (
            "right"  # the left is for a CrossEncoder alone: an encoder made of this cuts ends
        )
        weights = load_file(place / _HEADS)
        heads: dict[RerankerTask, nn.Linear] = {}
        for task in told["heads"]:
            heads[task] = nn.Linear(backbone.hidden, 1)
            heads[task].load_state_dict({key: weights[f"{task}.{key}"] for key in ("weight", "bias")})
        chosen = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
        if chosen.type == "cpu":
            backbone.store_weights_column_major()
        return cls(backbone, heads, told["max_length"], told["window"]).to(chosen).eval()

    def save(self, folder: Path | str, card: str | None = None) -> None:
        """Writes a sentence-transformers folder, which `CrossEncoder(folder)` and `Reranker.load` both read.

        There a conversation is one text: `pair_text` says how.

        Args:
            folder: where to.
            card: the model card, as Markdown.

        Raises:
            BackboneError: if it has no head for candidates.
        """
        if "selection" not in self.heads:
            raise BackboneError(
                f"a re-ranker that scores no candidates cannot be saved: it has {', '.join(self.heads)} alone"
            )
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        self.backbone.model.save_pretrained(folder)
        self.backbone.tokenizer.save_pretrained(folder)
        self._write_tokenizing(folder / "tokenizer_config.json")
        self._write_modules(folder)
        # what an encoder left there would not fit these weights
        shutil.rmtree(folder / COMPRESSION, ignore_errors=True)
        tensors = {key: value.contiguous() for key, value in self.heads.state_dict().items()}
        save_file(tensors, folder / _HEADS)
        write_json(
            folder / _DESCRIPTION,
            {
                "turnwise": __version__,
                "kind": "reranker",
                "heads": list(self.heads),
                "max_length": self.max_length,
                "window": self.window,
            },
        )
        if card is not None:
            (folder / "README.md").write_text(card, encoding="utf-8")

    def _write_tokenizing(self, path: Path) -> None:
        """Has a CrossEncoder read what is read here: it is to cut a conversation's head, too, and to tell segments apart."""
        settings = read_json(path)
        settings["truncation_side"] = "left"
        if self.backbone.has_segments:
            settings["model_input_names"] = ["input_ids", "token_type_ids", "attention_mask"]
        write_json(path, settings)

    def _write_modules(self, folder: Path) -> None:
        """Writes what a CrossEncoder is made of besides its transformer: the first token's state, and a layer to one number."""
        kinds = {
            "": "base.modules.transformer.Transformer",
            "1_Pooling": "sentence_transformer.modules.pooling.Pooling",
            _SELECTION: "base.modules.dense.Dense",
        }
        modules = [
            {"idx": index, "name": str(index), "path": path, "type": f"sentence_transformers.{kind}"}
            for index, (path, kind) in enumerate(kinds.items())
        ]
        pooling = {"embedding_dimension": self.backbone.hidden, "pooling_mode": "cls"}
        layer = {
            "in_features": self.backbone.hidden,
            "out_features": 1,
            "bias": True,
            "activation_function": "torch.nn.modules.linear.Identity",
            "module_input_name": "sentence_embedding",
            "module_output_name": "scores",
        }
        kind = {"model_type": "CrossEncoder", "activation_fn": "torch.nn.modules.activation.Sigmoid", "prompts": {}}
        write_json(folder / "modules.json", modules)
        write_json(folder / "sentence_bert_config.json", {"max_seq_length": self.max_length, "do_lower_case": False})
        write_json(folder / "1_Pooling" / "config.json", pooling)
        write_json(folder / _SELECTION / "config.json", layer)
        write_json(folder / "config_sentence_transformers.json", kind)
        weights = {f"linear.{key}": value.contiguous() for key, value in self.heads["selection"].state_dict().items()}
        save_file(weights, folder / _SELECTION / "model.safetensors")


def is_reranker(folder: Path) -> bool:
    """Whether a folder holds a re-ranker of turnwise's."""
    place = folder / _DESCRIPTION
    return place.is_file() and read_json(place).get("kind") == "reranker"


def pair_text(context: Conversation, candidate: str) -> tuple[str, str]:
    """A conversation and a candidate as the two texts that a sentence-transformers `CrossEncoder` is given."""
    return "".join(text + END_OF_TURN for text in turn_texts(context)), candidate + END_OF_TURN
