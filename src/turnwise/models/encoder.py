"""The encoder a user holds: texts and conversations in, vectors out; loaded from and saved as a sentence-transformers folder."""

import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from safetensors.torch import load_file, save_file
from torch import nn
from torch.nn.functional import normalize

from turnwise.core.dialogue import USER, Turn
from turnwise.core.files import write_json
from turnwise.core.progress import Progress, silent
from turnwise.corpus.slots.template import ONE_MARK, SlotMarks
from turnwise.models.backbone.backbone import Backbone
from turnwise.models.backbone.compose import Composer, TurnStyle, tokenise
from turnwise.models.backbone.onnx import OnnxBackbone
from turnwise.models.backbone.pooled import PooledBackbone
from turnwise.models.backbone.pooling import PoolerLayer, Pooling, pool
from turnwise.models.backbone.ragged import Ragged, Tokens
from turnwise.models.backbone.source import BackboneError, locate
from turnwise.models.backbone.static import StaticBackbone
from turnwise.models.backbone.stream import TokenStream, chunks
from turnwise.models.compression import Compression, Source, behind_layer, mixed
from turnwise.models.encoder_folder import DESCRIPTION, Saved, read_saved
from turnwise.version import __version__

#: What can be encoded: a text, or a conversation so far, newest turn last.
Input = str | Sequence[str] | Sequence[Turn]

#: Tokens of one forward pass, and texts tokenised at a time.
BATCH_TOKENS = {"cpu": 4096, "cuda": 65_536}
TOKENISED = 16_384

#: What backbones are read by, by how a model was exported; None: it was not.
_KINDS: dict[str | None, type[Backbone]] = {
    None: Backbone,
    OnnxBackbone.kind: OnnxBackbone,
    StaticBackbone.kind: StaticBackbone,
}

#: In a model's folder: what it takes to draw its vectors towards templates.
COMPRESSION = "compression"


class Encoder(nn.Module):
    """Encodes texts and conversations.

    Attributes:
        backbone: the transformer; a `PooledBackbone` where the model was exported: it can be run, not trained.
        pooling: how token states become a vector.
        max_length: tokens of an input, special ones included.
        normalise: whether vectors have length 1 unless asked otherwise.
        style: how the turns of a conversation are joined.
        marks: what stands for slots in the templates that it has learnt; `{SLOT}` where it has learnt none.
        pooler: SimCSE's layer, where the pooling is 'cls-mlp'.
        compression: draws vectors towards those of templates; None: it does not.
    """

    def __init__(
        self,
        backbone: Backbone,
        pooling: Pooling = "mean",
        max_length: int | None = None,
        normalise: bool = False,
        style: TurnStyle = "separator",
        marks: SlotMarks = ONE_MARK,
    ):
        super().__init__()
        self.backbone = backbone
        self.pooling: Pooling = pooling
        self.max_length = min(max_length or backbone.longest, backbone.longest)
        self.normalise = normalise
        self.style: TurnStyle = style
        self.marks = marks
        self.compression: Compression | None = None
        exported = isinstance(backbone, PooledBackbone)  # which has that layer inside
        self.pooler = PoolerLayer(backbone.hidden) if pooling == "cls-mlp" and not exported else None

    @property
    def hidden(self) -> int:
        """The size of a vector."""
        return self.backbone.hidden

    @property
    def composer(self) -> Composer:
        """What puts token sequences together for this encoder."""
        return Composer.of(self.backbone.tokenizer, self.style)

    # ---- encoding

    def forward(self, stream: TokenStream) -> torch.Tensor:
        """Vectors (sequences, hidden) in the order in which the sequences were given."""
        if isinstance(self.backbone, PooledBackbone):
            return self.backbone.vectors(stream)
        states = self.backbone(stream, "first-last" if self.pooling == "first-last" else "last")
        vectors = pool(states, stream, self.pooling)
        return vectors if self.pooler is None else self.pooler(vectors)

    def encode(
        self,
        inputs: str | Sequence[Input],
        *,
        normalise: bool | None = None,
        max_length: int | None = None,
        batch_tokens: int | None = None,
        progress: Progress = silent,
    ) -> npt.NDArray[np.float32]:
        """Vectors (inputs, hidden), float32, in the order of the inputs.

        An input is a text, or a conversation so far: a list of turns, newest last, as strings or `Turn`s. What is too long
        loses its end if it is a text, its beginning if it is a conversation; what has no token at all is a row of zeros. The same
        input gives the same vector whatever else is encoded with it, up to rounding. Where `compression` is on, vectors are drawn
        towards those of templates.

        Args:
            inputs: what to encode; a single text counts as a list of one.
            normalise: scale vectors to length 1; None: as the model was saved.
            max_length: tokens of an input, at most the model's own; None: the model's own.
            batch_tokens: tokens of one forward pass; None: what suits the device.
            progress: told how many inputs are done.
        """
        items: Sequence[Input] = [inputs] if isinstance(inputs, str) else inputs
        scaled = self.normalise if normalise is None else normalise
        if self.compression is None:
            return self._encode(items, scaled, max_length, batch_tokens, progress)
        utterances = self._encode(items, True, max_length, batch_tokens, progress)
        compression = self.compression
        templates = self.template_vectors(
            items,
            utterances,
            compression,
            compression.source,
            max_length=max_length,
            batch_tokens=batch_tokens,
            progress=progress,
        )
        vectors = mixed(utterances, templates, compression.share)
        return normalize(torch.from_numpy(vectors), dim=1).numpy() if scaled else vectors

    def template_vectors(
        self,
        items: Sequence[Input],
        utterances: npt.NDArray[np.float32],
        compression: Compression,
        source: Source,
        *,
        max_length: int | None = None,
        batch_tokens: int | None = None,
        progress: Progress = silent,
    ) -> npt.NDArray[np.float32]:
        """The templates' side of semantic compression: a vector of length 1 for each input.

        Args:
            items: the inputs.
            utterances: their own vectors, of length 1.
            compression: has the layer on templates, a detector, and templates to retrieve from.
            source: where templates come from.
            max_length: as in `encode`.
            batch_tokens: as in `encode`.
            progress: told how many templates are encoded.
        """
        device = compression.vectors.device
        if source == "retrieved":
            return compression.nearest(torch.from_numpy(utterances).to(device)).cpu().numpy()
        found = compression.given_templates(items) if source == "given" else compression.detected_templates(items)
        vectors = self._encode(found, False, max_length, batch_tokens, progress)
        with torch.inference_mode():
            behind: npt.NDArray[np.float32] = (
                behind_layer(torch.from_numpy(vectors).to(device), compression.layer).cpu().numpy()
            )
        return behind

    def _encode(
        self,
        items: Sequence[Input],
        normalise: bool,
        max_length: int | None,
        batch_tokens: int | None,
        progress: Progress,
    ) -> npt.NDArray[np.float32]:
        """Vectors of inputs as they are."""
        vectors = np.empty((len(items), self.hidden), np.float32)
        for first in range(0, len(items), TOKENISED):
            sequences = self.sequences(items[first : first + TOKENISED], max_length)

            def told(what: str, done: int, total: int | None = None, before: int = first) -> None:
                progress(what, before + done, len(items))

            vectors[first : first + len(sequences)] = self.encode_sequences(
                sequences, normalise=normalise, batch_tokens=batch_tokens, progress=told
            )
        return vectors

    def encode_sequences(
        self,
        sequences: Sequence[Tokens],
        *,
        normalise: bool | None = None,
        batch_tokens: int | None = None,
        progress: Progress = silent,
    ) -> npt.NDArray[np.float32]:
        """Vectors (sequences, hidden) of what `sequences` gave, as `encode` makes them, but without compression.

        Args:
            sequences: token sequences.
            normalise: as in `encode`.
            batch_tokens: as in `encode`.
            progress: told how many are done.
        """
        vectors = np.zeros((len(sequences), self.hidden), np.float32)
        budget = batch_tokens or BATCH_TOKENS.get(self.backbone.device.type, BATCH_TOKENS["cuda"])
        scaled = self.normalise if normalise is None else normalise
        # by token length: neighbours in a pass are alike, and the longest go last, when memory is warm
        together = Ragged.of(sequences)
        lengths = together.lengths
        order = np.argsort(lengths, kind="stable")
        order = order[lengths[order] > 0]  # nothing was said: zeros (where a tokenizer adds no special tokens)
        was_training = self.training
        self.eval()
        try:
            for start, end in chunks(lengths[order], budget):
                rows = order[start:end]
                with torch.inference_mode():
                    encoded = self(TokenStream.of(together.take(rows))).float()
                    vectors[rows] = (normalize(encoded, dim=1) if scaled else encoded).cpu().numpy()
                progress("encoding", len(sequences) - len(order) + end, len(sequences))
        finally:
            self.train(was_training)
        return vectors

    def sequences(self, items: Sequence[Input], max_length: int | None = None) -> Ragged:
        """The token sequences of inputs, cut to `max_length` tokens or the model's own number, whichever is less."""
        longest = min(max_length or self.max_length, self.max_length)
        texts = [item for item in items if isinstance(item, str)]
        if len(texts) == len(items) and not self.composer.roles:  # all at once
            return self.composer.texts(tokenise(self.backbone.tokenizer, texts), longest)
        histories = [_turns(item, self.style) for item in items]
        tokens = iter(tokenise(self.backbone.tokenizer, [text for turns in histories for _, text in turns]))
        composer = self.composer
        return Ragged.of(
            [
                composer.history([next(tokens) for _ in turns], [speaker for speaker, _ in turns], longest)
                for turns in histories
            ]
        )

    # ---- loading and saving

    @classmethod
    def load(
        cls,
        name: str | Path,
        *,
        device: str | torch.device | None = None,
        pooling: Pooling | None = None,
        compressed: bool = False,
    ) -> "Encoder":
        """Loads an encoder: 'minilm', a folder, or a Hugging Face id.

        A sentence-transformers folder keeps its pooling; a plain backbone is pooled by the mean. A folder that `turnwise export`
        wrote is run by onnxruntime, on the CPU, with as many threads as torch has, or is a table of token vectors, as model2vec
        writes them, too.

        Args:
            name: which one.
            device: where to put it; None: a GPU where there is one.
            pooling: instead of the model's own.
            compressed: draw vectors towards those of templates (TaDSE's semantic compression), as the folder says how.

        Raises:
            BackboneError: if it cannot be loaded, or holds parts that turnwise does not know.
            CompressionError: if it is to be compressed and was not trained on templates.
        """
        place = locate(name)
        saved = read_saved(place)
        if saved.exported:
            _expect_as_exported(place, saved, device, pooling)
        encoder = cls(
            # an older sentence-transformers folder has it a level below
            _KINDS[saved.exported].load(place / saved.path),
            pooling or saved.pooling,
            saved.max_length,
            saved.normalise,
            saved.style,
            saved.marks,
        )
        if encoder.pooler is not None and saved.dense:
            weights = load_file(place / saved.dense / "model.safetensors")
            encoder.pooler.linear.load_state_dict(
                {key.removeprefix("linear."): value for key, value in weights.items()}
            )
        if compressed:
            encoder.compression = Compression.load(place / COMPRESSION)
        if (
            saved.exported
        ):  # summing rows of a table takes less time than carrying tokens to a GPU: there if asked alone
            return encoder.to(device or "cpu").eval()
        chosen = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
        if chosen.type == "cpu":
            encoder.backbone.lay_out_for_cpu()
        return encoder.to(chosen).eval()

    def save(self, folder: Path | str, card: str | None = None) -> None:
        """Writes a sentence-transformers folder, which `SentenceTransformer(folder)` and `Encoder.load` both read.

        An exported model is written as an exported one: a graph is read by `Encoder.load` alone, a table of token vectors by both.
        Semantic compression is written where it is on; one that the folder had before is removed.

        Args:
            folder: where to.
            card: the model card, as Markdown.

        Raises:
            BackboneError: if the pooling is 'first-last', which sentence-transformers does not have.
        """
        if self.pooling == "first-last" and not isinstance(self.backbone, PooledBackbone):
            raise BackboneError(
                "an encoder pooled by 'first-last' cannot be saved: sentence-transformers has no such pooling; save it with another"
                " one, and ask for 'first-last' when it is loaded"
            )
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        if isinstance(self.backbone, PooledBackbone):
            self._save_exported(self.backbone, folder)
        else:
            self._save_modules(folder)
        # what another model left there would not fit this one's weights
        shutil.rmtree(folder / COMPRESSION, ignore_errors=True)
        if self.compression is not None:
            self.compression.save(folder / COMPRESSION)
        if card is not None:
            (folder / "README.md").write_text(card, encoding="utf-8")

    def _save_exported(self, backbone: PooledBackbone, folder: Path) -> None:
        backbone.save(folder, self.normalise)
        described = {"pooling": self.pooling, "max_length": self.max_length, "normalise": self.normalise}
        kind = {"turnwise": __version__, "kind": backbone.kind, "style": self.style, "slots": self.marks.names}
        write_json(folder / DESCRIPTION, {**kind, **described})

    def _save_modules(self, folder: Path) -> None:
        self.backbone.model.save_pretrained(folder)
        self.backbone.tokenizer.save_pretrained(folder)
        modules = [("", "Transformer"), ("1_Pooling", "Pooling")]
        write_json(folder / "sentence_bert_config.json", {"max_seq_length": self.max_length, "do_lower_case": False})
        kind = "cls" if self.pooling == "cls-mlp" else self.pooling
        write_json(
            folder / "1_Pooling" / "config.json",
            {
                "word_embedding_dimension": self.hidden,
                "pooling_mode_cls_token": kind == "cls",
                "pooling_mode_mean_tokens": kind == "mean",
                "pooling_mode_max_tokens": kind == "max",
                "pooling_mode_mean_sqrt_len_tokens": False,
            },
        )
        if self.pooler is not None:
            modules.append(("2_Dense", "Dense"))
            sizes = {"in_features": self.hidden, "out_features": self.hidden, "bias": True}
            write_json(
                folder / "2_Dense" / "config.json", {**sizes, "activation_function": "torch.nn.modules.activation.Tanh"}
            )
            weights = {f"linear.{key}": value.contiguous() for key, value in self.pooler.linear.state_dict().items()}
            save_file(weights, folder / "2_Dense" / "model.safetensors")
        if self.normalise:
            modules.append((f"{len(modules)}_Normalize", "Normalize"))
            (folder / modules[-1][0]).mkdir(exist_ok=True)
        write_json(
            folder / "modules.json",
            [
                {"idx": index, "name": str(index), "path": path, "type": f"sentence_transformers.models.{name}"}
                for index, (path, name) in enumerate(modules)
            ],
        )
        write_json(folder / "config_sentence_transformers.json", {"similarity_fn_name": "cosine"})
        write_json(folder / DESCRIPTION, {"turnwise": __version__, "style": self.style, "slots": self.marks.names})


def _turns(item: Input, style: TurnStyle) -> list[tuple[str, str]]:
    """(speaker, text) of an input's turns; a text is a conversation of one turn."""
    if isinstance(item, str):
        return [(USER, item)]
    if not item:
        raise ValueError("a conversation without turns cannot be encoded")
    turns = []
    for turn in item:
        if isinstance(turn, Turn):
            turns.append((turn.speaker, turn.text))
        elif isinstance(turn, str):
            if style == "roles" and len(item) > 1:
                raise ValueError("this model tells speakers apart: give a conversation as Turn objects, not as strings")
            turns.append((USER, turn))
        else:
            raise TypeError(f"a turn is a string or a Turn, not {type(turn).__name__}")
    return turns


def _expect_as_exported(folder: Path, saved: Saved, device: str | torch.device | None, pooling: Pooling | None) -> None:
    """Pooling and device are settled when a model is exported."""
    if pooling not in (None, saved.pooling):
        if saved.exported == StaticBackbone.kind:
            raise BackboneError(
                f"{folder} is a table of token vectors, whose pooling is their mean: leave {pooling!r} out"
            )
        raise BackboneError(
            f"{folder} was exported with the pooling {saved.pooling!r}, which is part of its graph: export the model again with"
            f" --pooling {pooling}"
        )
    if saved.exported == OnnxBackbone.kind and device is not None and torch.device(device).type != "cpu":
        raise BackboneError(
            f"{folder} is an ONNX model, which runs on the CPU alone: on {device} use the one that it was exported from"
        )
