"""The encoder: texts and conversations in, vectors out; loaded from and saved as a sentence-transformers folder."""

import reprlib
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import torch
from safetensors.torch import load_file
from torch import nn
from torch.nn.functional import normalize

from turnwise.core.dialogue import USER, Turn, turn_texts
from turnwise.core.files import read_json, write_json
from turnwise.core.progress import Progress, silent
from turnwise.core.types import Vectors
from turnwise.corpus.membership import TrainingData, save_training_data
from turnwise.corpus.slots.template import ONE_MARK, SlotMarks
from turnwise.models.backbone.backbone import Backbone, PoolerLayer, Pooling, choose_device, evaluation_mode, pool
from turnwise.models.backbone.exported import ExportedBackbone, OnnxBackbone, StaticBackbone
from turnwise.models.backbone.inputs import Composer, TurnStyle, tokenise
from turnwise.models.backbone.ragged import RaggedTokens, Tokens, token_batches
from turnwise.models.backbone.source import (
    BackboneError,
    load_training_data,
    locate_model,
    write_dense,
    write_modules,
)
from turnwise.models.backbone.stream import TokenStream
from turnwise.models.compression import Compression, TemplateSource, mix_vectors, project_templates
from turnwise.models.identity import EncoderId, index_fingerprint
from turnwise.version import __version__

#: What can be encoded: a text, or a conversation so far, newest turn last.
TextOrTurns = str | Sequence[str] | Sequence[Turn]

#: Tokens of one forward pass by device type, and texts tokenised at a time.
BATCH_TOKENS = {"cpu": 4096, "cuda": 65_536}
TOKENISE_BATCH = 16_384

#: In a model's folder: turnwise's own settings, and the folder of semantic compression.
DESCRIPTION_FILE = "turnwise.json"
COMPRESSION = "compression"

#: The kinds of exported models, and their backbones.
ExportKind = Literal["onnx", "static"]
_EXPORTED: dict[str, type[ExportedBackbone]] = {"onnx": OnnxBackbone, "static": StaticBackbone}


@dataclass(slots=True)
class EncoderConfig:
    """The settings of an encoder in a model's folder (see `Encoder`); the defaults are those of a plain backbone."""

    path: str = ""  # of the backbone, which older sentence-transformers folders keep in a subfolder
    pooling: Pooling = "mean"
    max_length: int | None = None
    normalise: bool = False
    style: TurnStyle = "separator"
    marks: SlotMarks = ONE_MARK
    dense: str = ""  # path of the layer of the pooling 'cls-mlp'
    exported: ExportKind | None = None
    origin: str | None = None  # see `Encoder`

    @classmethod
    def read(cls, folder: Path) -> "EncoderConfig":
        """Read a folder of turnwise, model2vec, sentence-transformers or transformers."""
        config = cls()
        if (folder / DESCRIPTION_FILE).is_file():
            settings = read_json(folder / DESCRIPTION_FILE)
            kind = settings.get("kind")
            if kind == "reranker":
                raise BackboneError(f"{folder} holds a re-ranker, not an encoder: load it with Reranker.load")
            config.style, config.marks = settings["style"], SlotMarks(tuple(settings.get("slots", ())))
            if kind in get_args(ExportKind):
                config.exported, config.pooling = kind, settings["pooling"]
                config.max_length, config.normalise = settings["max_length"], settings["normalise"]
                config.origin = settings.get("origin")
                return config
        if (folder / "modules.json").is_file():
            for module in read_json(folder / "modules.json"):
                config._read_module(folder, module["type"], module["path"])
        return config

    def _read_module(self, folder: Path, module: str, path: str) -> None:
        kind = module.rpartition(".")[2]
        if kind == "Transformer":
            settings = folder / path / "sentence_bert_config.json"
            self.path = path
            self.max_length = read_json(settings).get("max_seq_length") if settings.is_file() else None
        elif kind == "Pooling":
            self.pooling = _read_pooling(folder, read_json(folder / path / "config.json"))
        elif kind == "Dense" and self.pooling == "cls" and _is_pooler(read_json(folder / path / "config.json")):
            self.pooling, self.dense = "cls-mlp", path
        elif kind == "StaticEmbedding":
            self.path, self.exported = path, "static"
        elif kind == "Normalize":
            self.normalise = True
        else:
            raise BackboneError(f"{folder} has a module that turnwise does not support: {module}")


def _read_pooling(folder: Path, settings: dict[str, Any]) -> Pooling:
    """Return the pooling of a sentence-transformers folder, in its old or new format."""
    poolings: dict[str, Pooling] = {"cls_token": "cls", "mean_tokens": "mean", "max_tokens": "max"}
    poolings |= {"cls": "cls", "mean": "mean", "max": "max"}
    prefix = "pooling_mode_"
    names = [key.removeprefix(prefix) for key, value in settings.items() if key.startswith(prefix) and value]
    names = [settings["pooling_mode"]] if "pooling_mode" in settings else names
    if len(names) != 1 or names[0] not in poolings:
        raise BackboneError(f"{folder} has a pooling that turnwise does not support: {settings}")
    return poolings[names[0]]


def _is_pooler(settings: dict[str, Any]) -> bool:
    square = settings["in_features"] == settings["out_features"]
    return bool(square and settings.get("bias", True)) and str(settings.get("activation_function", "")).endswith("Tanh")


class Encoder(nn.Module):
    """Encodes texts and conversations.

    Attributes:
        backbone: the transformer; an `ExportedBackbone` of an exported model can be run, but not trained.
        pooling: how token states become a vector.
        max_length: tokens of an input, including special ones.
        normalise: whether vectors have length 1 by default.
        style: how the turns of a conversation are joined.
        marks: the slot marks of the templates that the model was trained on; `{SLOT}` without any.
        pooler: SimCSE's layer for the pooling 'cls-mlp'.
        compression: moves vectors towards those of templates; None: off.
        training_data: what is known of the texts that it was trained on; None: nothing.
        name: what it was loaded as, for messages; empty if it was not loaded.
        origin: of an ONNX graph, the fingerprint of the weights that it was exported from; None: unknown.
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
        self.max_length = min(max_length or backbone.max_length, backbone.max_length)
        self.normalise = normalise
        self.style: TurnStyle = style
        self.marks = marks
        self.compression: Compression | None = None
        self.training_data: TrainingData | None = None
        self.name = ""
        self.origin: str | None = None
        exported = isinstance(backbone, ExportedBackbone)  # which contains that layer
        self.pooler = PoolerLayer(backbone.hidden) if pooling == "cls-mlp" and not exported else None

    @property
    def hidden(self) -> int:
        """The size of a vector."""
        return self.backbone.hidden

    @property
    def composer(self) -> Composer:
        """Composes the token sequences of this encoder."""
        return Composer.of(self.backbone.tokenizer, self.style)

    def identify(self, max_length: int | None = None) -> EncoderId:
        """Return what identifies its vectors of inputs of `max_length` tokens (None: its limit) in an index."""
        return EncoderId(self.name, index_fingerprint(self, max_length))

    # ---- encoding

    def forward(self, stream: TokenStream) -> torch.Tensor:
        """Return vectors (sequences, hidden) in input order."""
        if isinstance(self.backbone, ExportedBackbone):
            return self.backbone.vectors(stream)
        states = self.backbone(stream, "first-last" if self.pooling == "first-last" else "last")
        vectors = pool(states, stream, self.pooling)
        return vectors if self.pooler is None else self.pooler(vectors)

    def encode(
        self,
        inputs: str | Sequence[TextOrTurns],
        *,
        normalise: bool | None = None,
        max_length: int | None = None,
        batch_tokens: int | None = None,
        progress: Progress = silent,
    ) -> Vectors:
        """Return vectors (inputs, hidden), float32, in input order.

        An input is a text, or a conversation so far: a list of turns, newest last, as strings or `Turn`s. Too long a
        text loses its end, too long a conversation its beginning; an input without any token is a row of zeros. The
        same input gives the same vector whatever else is encoded with it, up to rounding.

        Args:
            inputs: what to encode; a single text counts as a list of one.
            normalise: scale vectors to length 1; None: the model's own setting.
            max_length: tokens of an input, at most the model's own; None: the model's own.
            batch_tokens: tokens of one forward pass; None: a default for the device.
            progress: reports the number of encoded inputs.

        Raises:
            TypeError: if an input, or a turn of it, is something else; the message says which.
            ValueError: if a conversation has no turn.
        """
        items: Sequence[TextOrTurns] = [inputs] if isinstance(inputs, str) else inputs
        _check_inputs(items)
        unit = self.normalise if normalise is None else normalise
        options = (max_length, batch_tokens, progress)
        if self.compression is None:
            return self._encode(items, unit, *options)
        utterances = self._encode(items, True, *options)
        templates = self.encode_templates(items, self.compression, self.compression.source, *options, utterances)
        vectors = mix_vectors(utterances, templates, self.compression.template_weight)
        return normalize(torch.from_numpy(vectors), dim=1).numpy() if unit else vectors

    def encode_templates(
        self,
        items: Sequence[TextOrTurns],
        compression: Compression,
        source: TemplateSource,
        max_length: int | None = None,
        batch_tokens: int | None = None,
        progress: Progress = silent,
        utterances: Vectors | None = None,
    ) -> Vectors:
        """Return the vectors of the inputs' templates for semantic compression, of length 1 (inputs, hidden).

        `utterances` are the inputs' own vectors, of length 1, if known; for the rest see `encode` and `Compression`.
        """
        device, options = compression.vectors.device, (max_length, batch_tokens, progress)
        if source == "retrieved":
            queries = self._encode(items, True, *options) if utterances is None else utterances
            return compression.nearest(torch.from_numpy(queries).to(device)).cpu().numpy()
        templates = compression.templates_of(items, source)
        vectors = torch.from_numpy(self._encode(templates, False, *options)).to(device)
        with torch.inference_mode():
            projected: Vectors = project_templates(vectors, compression.layer).cpu().numpy()
        return projected

    def _encode(
        self,
        items: Sequence[TextOrTurns],
        normalise: bool,
        max_length: int | None,
        batch_tokens: int | None,
        progress: Progress,
    ) -> Vectors:
        """Return vectors without compression."""
        vectors = np.empty((len(items), self.hidden), np.float32)
        for first in range(0, len(items), TOKENISE_BATCH):
            sequences = self.tokenise(items[first : first + TOKENISE_BATCH], max_length)

            def report(what: str, done: int, total: int | None = None, before: int = first) -> None:
                progress(what, before + done, len(items))

            vectors[first : first + len(sequences)] = self.encode_sequences(
                sequences, normalise=normalise, batch_tokens=batch_tokens, progress=report
            )
        return vectors

    def encode_sequences(
        self,
        sequences: Sequence[Tokens],
        *,
        normalise: bool | None = None,
        batch_tokens: int | None = None,
        progress: Progress = silent,
    ) -> Vectors:
        """Return vectors (sequences, hidden) of token sequences from `tokenise`, without compression; see `encode`."""
        vectors = np.zeros((len(sequences), self.hidden), np.float32)
        budget = batch_tokens or BATCH_TOKENS.get(self.backbone.device.type, BATCH_TOKENS["cuda"])
        unit = self.normalise if normalise is None else normalise
        # by token length: sequences of a pass are similar, and the longest come last, when memory is warm
        ragged = RaggedTokens.of(sequences)
        lengths = ragged.lengths
        order = np.argsort(lengths, kind="stable")
        order = order[lengths[order] > 0]  # without any token (some tokenizers add no special ones): zeros
        with evaluation_mode(self):
            for start, end in token_batches(lengths[order], budget):
                rows = order[start:end]
                with torch.inference_mode():
                    encoded = self(TokenStream.of(ragged.take(rows))).float()
                    vectors[rows] = (normalize(encoded, dim=1) if unit else encoded).cpu().numpy()
                progress("encoding", len(sequences) - len(order) + end, len(sequences))
        return vectors

    def tokenise(self, items: Sequence[TextOrTurns], max_length: int | None = None) -> RaggedTokens:
        """Return the token sequences of inputs, truncated to `max_length` or the model's own, whichever is less."""
        longest = min(max_length or self.max_length, self.max_length)
        composer = self.composer
        texts = [item for item in items if isinstance(item, str)]
        if len(texts) == len(items) and not composer.roles:  # all at once
            return composer.texts(tokenise(self.backbone.tokenizer, texts), longest)
        histories = [_turns_of(item, self.style) for item in items]
        tokens = iter(tokenise(self.backbone.tokenizer, [text for turns in histories for _, text in turns]))
        return RaggedTokens.of(
            [composer.history([next(tokens) for _ in turns], [who for who, _ in turns], longest) for turns in histories]
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
        """Load an encoder: 'turnwise-small', 'minilm', a folder, or a Hugging Face id.

        A sentence-transformers folder keeps its pooling; a plain backbone gets mean pooling. An ONNX folder of
        `turnwise export` is run by onnxruntime on the CPU, with as many threads as torch uses. Static folders may also
        be model2vec's.

        Args:
            name: of the model.
            device: None: a GPU if there is one.
            pooling: replaces the model's own.
            compressed: apply TaDSE's semantic compression, as configured in the folder.
        """
        folder = locate_model(name)
        config = EncoderConfig.read(folder)
        if config.exported:
            _check_exported(folder, config, device, pooling)
        backbone = (_EXPORTED[config.exported] if config.exported else Backbone).load(folder / config.path)
        chosen = pooling or config.pooling
        encoder = cls(backbone, chosen, config.max_length, config.normalise, config.style, config.marks)
        if encoder.pooler is not None and config.dense:
            weights = load_file(folder / config.dense / "model.safetensors")
            state = {key.removeprefix("linear."): value for key, value in weights.items()}
            encoder.pooler.linear.load_state_dict(state)
        encoder.training_data = load_training_data(folder)
        encoder.name, encoder.origin = str(name), config.origin
        if compressed:
            encoder.compression = Compression.load(folder / COMPRESSION)
        if config.exported:  # a static table is faster than the transfer of tokens to a GPU: there only on request
            return encoder.to(device or "cpu").eval()
        return encoder.to(choose_device(backbone, device)).eval()

    def save(self, folder: Path | str, card: str | None = None) -> None:
        """Write a sentence-transformers folder, which `SentenceTransformer(folder)` and `Encoder.load` both read.

        An ONNX model is readable by `Encoder.load` alone. Semantic compression is written if it is on; an older one in
        the folder is removed. `card` is the model card, as Markdown.
        """
        if self.pooling == "first-last" and not isinstance(self.backbone, ExportedBackbone):
            raise BackboneError(
                "an encoder with 'first-last' pooling cannot be saved: sentence-transformers has no such pooling; "
                "save it with another one, and choose 'first-last' when you load it"
            )
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        settings: dict[str, Any] = {"turnwise": __version__, "style": self.style, "slots": self.marks.names}
        if isinstance(self.backbone, ExportedBackbone):
            self.backbone.save(folder, self.normalise)
            settings |= {"kind": self.backbone.kind, "pooling": self.pooling}
            settings |= {"max_length": self.max_length, "normalise": self.normalise, "origin": self.origin}
        else:
            self._save_modules(folder)
        write_json(folder / DESCRIPTION_FILE, settings)
        save_training_data(self.training_data, folder)
        # another model's compression would not fit
        shutil.rmtree(folder / COMPRESSION, ignore_errors=True)
        if self.compression is not None:
            self.compression.save(folder / COMPRESSION)
        if card is not None:
            (folder / "README.md").write_text(card, encoding="utf-8")

    def _save_modules(self, folder: Path) -> None:
        self.backbone.save_transformer(folder, self.max_length)
        modules = ["Transformer", "Pooling"] + ["Dense"] * (self.pooler is not None) + ["Normalize"] * self.normalise
        write_modules(folder, [f"models.{name}" for name in modules])
        pooling = "cls" if self.pooling == "cls-mlp" else self.pooling
        modes = {"cls_token": "cls", "mean_tokens": "mean", "max_tokens": "max", "mean_sqrt_len_tokens": ""}
        settings = {f"pooling_mode_{mode}": name == pooling for mode, name in modes.items()}
        write_json(folder / "1_Pooling" / "config.json", {"word_embedding_dimension": self.hidden, **settings})
        if self.pooler is not None:
            write_dense(folder / "2_Dense", self.pooler.linear, "activation.Tanh")
        write_json(folder / "config_sentence_transformers.json", {"similarity_fn_name": "cosine"})


def _check_inputs(items: Sequence[TextOrTurns]) -> None:
    """Raise TypeError unless all items are texts or conversations."""
    for position, item in enumerate(items):
        if isinstance(item, str):
            continue
        if not hasattr(item, "__iter__") or isinstance(item, bytes | Mapping):
            raise TypeError(f"inputs[{position}] is {reprlib.repr(item)}: expected a text, or a list of turns")
        for number, turn in enumerate(item):
            if not isinstance(turn, str | Turn):
                raise TypeError(
                    f"inputs[{position}][{number}] is {reprlib.repr(turn)}: a turn is a string or a Turn, not "
                    f"{type(turn).__name__}"
                )


def _turns_of(item: TextOrTurns, style: TurnStyle) -> list[tuple[str, str]]:
    """Return (speaker, text) of an input's turns; a text is a conversation of one turn."""
    if isinstance(item, str):
        return [(USER, item)]
    texts = turn_texts(item)
    if style == "roles" and len(item) > 1 and any(isinstance(turn, str) for turn in item):
        raise ValueError("this model distinguishes speakers: give a conversation as Turn objects, not as strings")
    speakers = [turn.speaker if isinstance(turn, Turn) else USER for turn in item]
    return list(zip(speakers, texts, strict=True))


def _check_exported(
    folder: Path, config: EncoderConfig, device: str | torch.device | None, pooling: Pooling | None
) -> None:
    """Make sure that a pooling and a device fit an exported model."""
    if pooling not in (None, config.pooling):
        if config.exported == "static":
            raise BackboneError(f"{folder} is a table of token vectors, whose pooling is 'mean': leave {pooling!r} out")
        raise BackboneError(
            f"{folder} was exported with the pooling {config.pooling!r}, which is part of its graph: export the "
            f"model again with --pooling {pooling}"
        )
    if config.exported == "onnx" and device is not None and torch.device(device).type != "cpu":
        raise BackboneError(
            f"{folder} is an ONNX model, which runs on the CPU only: on {device} use the model that it was made of"
        )
