"""The encoder: texts and conversations in, vectors out.

`TrainableEncoder` runs a transformer with torch, `ExportedEncoder` what `turnwise export` wrote, without torch.
"""

import reprlib
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self, get_args

import numpy as np
import numpy.typing as npt

from turnwise.core.dialogue import USER, Turn, turn_texts
from turnwise.core.errors import ModelError
from turnwise.core.files import explaining_damage, read_json
from turnwise.core.imports import import_object, without_garbage_collection
from turnwise.core.progress import Progress, silent
from turnwise.core.types import Vectors, normalise_vectors
from turnwise.corpus.training_data import TrainingData
from turnwise.models.backbone.inputs import AnyTokenizer, Composer, TurnStyle, collect_tokens, run_tokenizer
from turnwise.models.backbone.ragged import RaggedTokens, Tokens, token_batches
from turnwise.models.backbone.source import (
    DESCRIPTION_FILE,
    Pooling,
    Runtime,
    is_universal,
    load_training_data,
    locate_model,
    write_description,
)
from turnwise.models.identity import EncoderId, digest_model, tokenizer_text

#: What can be encoded: a text, or a conversation so far, newest turn last.
TextOrTurns = str | Sequence[str] | Sequence[Turn]

#: Makes token sequences of the result of `run_tokenizer`.
Compose = Callable[[list[Any]], RaggedTokens]

#: Texts tokenised at a time.
TOKENISE_BATCH = 32_768

#: Of matrix products.
Precision = Literal["float32", "bfloat16", "float16"]

#: The type, layers and hidden units of a backbone, such as ('bert', 12, 768).
Architecture = tuple[str, int, int]

#: The kinds of exported models.
ExportKind = Literal["onnx", "static"]


@dataclass(slots=True)
class EncoderConfig:
    """The settings of an encoder in a model's folder (see `Encoder`); the defaults are those of a plain backbone."""

    path: str = ""  # of the backbone, which older sentence-transformers folders keep in a subfolder
    pooling: Pooling = "mean"
    max_length: int | None = None
    normalise: bool = False
    style: TurnStyle = "separator"
    dense: str = ""  # path of the layer of the pooling 'cls-mlp'
    exported: ExportKind | Literal["universal"] | None = None
    origin: str | None = None  # see `Encoder`
    runtime: Runtime = "onnxruntime"  # of an ONNX graph; not in the folder, but chosen when it is loaded

    @classmethod
    def read(cls, folder: Path) -> "EncoderConfig":
        """Read a folder of turnwise, model2vec, sentence-transformers or transformers."""
        if is_universal(folder):
            return cls(max_length=512, normalise=True, exported="universal")
        config = cls()
        if (folder / DESCRIPTION_FILE).is_file():
            settings = read_json(folder / DESCRIPTION_FILE)
            kind = settings.get("kind")
            if kind == "reranker":
                raise ModelError(f"{folder} holds a re-ranker, not an encoder: load it with Reranker.load")
            config.style = settings["style"]
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
        if not (folder / path).resolve().is_relative_to(folder.resolve()):
            raise ModelError(f"{folder} has a module outside the folder, in {path}: save the model again")
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
            raise ModelError(f"{folder} has a module that turnwise does not support: {module}")


def _read_pooling(folder: Path, settings: dict[str, Any]) -> Pooling:
    """Return the pooling of a sentence-transformers folder, in its old or new format."""
    poolings: dict[str, Pooling] = {"cls_token": "cls", "mean_tokens": "mean", "max_tokens": "max"}
    poolings |= {"cls": "cls", "mean": "mean", "max": "max"}
    prefix = "pooling_mode_"
    names = [key.removeprefix(prefix) for key, value in settings.items() if key.startswith(prefix) and value]
    names = [settings["pooling_mode"]] if "pooling_mode" in settings else names
    if len(names) != 1 or names[0] not in poolings:
        raise ModelError(f"{folder} has a pooling that turnwise does not support: {settings}")
    return poolings[names[0]]


def _is_pooler(settings: dict[str, Any]) -> bool:
    square = settings["in_features"] == settings["out_features"]
    return bool(square and settings.get("bias", True)) and str(settings.get("activation_function", "")).endswith("Tanh")


class Encoder(ABC):
    """Encodes texts and conversations.

    Attributes:
        tokenizer: splits texts into tokens.
        hidden: the size of a vector.
        pooling: how token states become a vector.
        max_length: tokens of an input, including special ones.
        normalise: whether vectors have length 1 by default.
        style: how the turns of a conversation are joined.
        training_data: what is known of the texts that it was trained on; None: nothing.
        name: what it was loaded as, for messages; empty if it was not loaded.
        origin: of an ONNX graph, the fingerprint of the weights that it was exported from; None: unknown.
        precision: of matrix products in `encode`.
    """

    def __init__(self, tokenizer: AnyTokenizer, hidden: int, max_length: int, settings: EncoderConfig):
        self.tokenizer: AnyTokenizer = tokenizer
        self.hidden = hidden
        self.pooling, self.normalise, self.style = settings.pooling, settings.normalise, settings.style
        self.max_length = max_length
        self.training_data: TrainingData | None = None
        self.name = ""
        self.origin: str | None = None
        self.precision: Precision = "float32"

    @property
    @abstractmethod
    def device(self) -> str:
        """The device that it runs on, as torch names it."""

    @property
    @abstractmethod
    def architecture(self) -> Architecture:
        """The type, layers and hidden units of the backbone."""

    @abstractmethod
    def digest(self, settings: str, *texts: str) -> str:
        """Return a hash of all weights, of settings, the backbone's configuration, and texts."""

    @abstractmethod
    def weights_fingerprint(self) -> str:
        """Return a hash of weights and vocabulary: the same on every device, with every version of a library."""

    @abstractmethod
    def _encode_batch(self, batch: RaggedTokens) -> Vectors:
        """Return vectors (sequences, hidden), not normalised, of sequences that have at least one token each."""

    @property
    @abstractmethod
    def _batch_tokens(self) -> int:
        """The default number of tokens of one forward pass."""

    @property
    def reads_texts_only(self) -> bool:
        """Whether the vectors of turns depend on their texts alone, not on speakers and slots."""
        return self.style == "separator"

    @property
    def composer(self) -> Composer:
        """Composes the token sequences of this encoder."""
        return Composer.of(self.tokenizer, self.style)

    def identify(self, max_length: int | None = None) -> EncoderId:
        """Return what identifies its vectors of inputs of `max_length` tokens (None: its limit) in an index."""
        return EncoderId(self.name, index_fingerprint(self, max_length))

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
        """
        items: Sequence[TextOrTurns] = [inputs] if isinstance(inputs, str) else inputs
        _check_inputs(items)
        portions = self._tokenise_ahead(items, max_length)
        return self._encode_portions(portions, len(items), normalise, batch_tokens, progress)

    def _tokenise_ahead(self, items: Sequence[TextOrTurns], max_length: int | None) -> Iterator[RaggedTokens]:
        """Yield the token sequences of inputs in portions; a thread tokenises the next ones in the meantime.

        The thread only runs the tokenizer, which releases the GIL: this one must not wait to keep a GPU busy.
        """
        if len(items) <= TOKENISE_BATCH:
            yield self.tokenise(items, max_length)
            return
        with ThreadPoolExecutor(1) as thread:  # one: the tokenizer has threads of its own
            ahead: deque[tuple[Compose, Future[list[Any]]]] = deque()
            for start in range(0, len(items), TOKENISE_BATCH):
                arguments, compose = self._split(items[start : start + TOKENISE_BATCH], max_length)
                ahead.append((compose, thread.submit(run_tokenizer, self.tokenizer, *arguments)))
                if len(ahead) > 2:
                    compose, tokens = ahead.popleft()
                    yield compose(tokens.result())
            yield from (compose(tokens.result()) for compose, tokens in ahead)

    def encode_sequences(
        self,
        sequences: Sequence[Tokens],
        *,
        normalise: bool | None = None,
        batch_tokens: int | None = None,
        progress: Progress = silent,
    ) -> Vectors:
        """Return vectors (sequences, hidden) of token sequences from `tokenise`; see `encode`."""
        return self._encode_portions([RaggedTokens.of(sequences)], len(sequences), normalise, batch_tokens, progress)

    def _encode_portions(
        self,
        portions: Iterable[RaggedTokens],
        total: int,
        normalise: bool | None,
        batch_tokens: int | None,
        progress: Progress,
    ) -> Vectors:
        """Return vectors (total, hidden) of the sequences of all portions; a portion is read when it is needed."""
        vectors = np.zeros((total, self.hidden), np.float32)  # those without any token stay as they are
        rows_of_batches: deque[npt.NDArray[np.int64]] = deque()
        done = 0

        def batches() -> Iterator[RaggedTokens]:
            nonlocal done
            first = 0
            for portion in portions:
                # by token length: sequences of a pass are similar, and the longest come last, when memory is warm
                order = np.argsort(portion.lengths, kind="stable")
                order = order[portion.lengths[order] > 0]
                done += len(portion) - len(order)
                for start, end in token_batches(portion.lengths[order], batch_tokens or self._batch_tokens):
                    rows_of_batches.append(first + order[start:end])
                    yield portion.take(order[start:end])
                first += len(portion)

        with self._encoding_mode():
            for encoded in self._encode_batches(batches(), self.normalise if normalise is None else normalise):
                rows = rows_of_batches.popleft()
                vectors[rows] = encoded
                done += len(rows)
                progress("encoding", done, total)
        return vectors

    def _encoding_mode(self) -> AbstractContextManager[None]:
        """Return a context in which the model is run."""
        return nullcontext()

    def _encode_batches(self, batches: Iterable[RaggedTokens], normalise: bool) -> Iterator[Vectors]:
        """Yield the vectors (sequences, hidden) of batches, in order; see `_encode_batch`."""
        for batch in batches:
            vectors = self._encode_batch(batch)
            yield normalise_vectors(vectors) if normalise else vectors

    def tokenise(self, items: Sequence[TextOrTurns], max_length: int | None = None) -> RaggedTokens:
        """Return the token sequences of inputs, truncated to `max_length` or the model's own, whichever is less."""
        arguments, compose = self._split(items, max_length)
        return compose(run_tokenizer(self.tokenizer, *arguments))

    def _split(
        self, items: Sequence[TextOrTurns], max_length: int | None
    ) -> tuple[tuple[list[str], int, list[bool]], Compose]:
        """Return the arguments of `run_tokenizer` for inputs, and what makes token sequences of its result."""
        longest, composer = min(max_length or self.max_length, self.max_length), self.composer
        texts = [item for item in items if isinstance(item, str)]
        if len(texts) == len(items) and self.style == "separator":
            arguments = texts, longest, [True] * len(texts)
            return arguments, lambda encoded: composer.texts(collect_tokens(encoded), longest)
        histories = [_turns_of(item, self.style) for item in items]

        def compose(encoded: list[Any]) -> RaggedTokens:
            tokens = collect_tokens(encoded)
            if not composer.roles:
                counts = np.array([len(turns) for turns in histories])
                return composer.histories(tokens, counts, np.full(len(counts), longest))
            each = iter(tokens)
            return RaggedTokens.of(
                [
                    composer.history([next(each) for _ in turns], [who for who, _ in turns], longest)
                    for turns in histories
                ]
            )

        from_start = [len(turns) == 1 and not composer.roles for turns in histories for _ in turns]
        return ([text for turns in histories for _, text in turns], longest, from_start), compose

    @classmethod
    def load(
        cls,
        name: str | Path,
        *,
        device: Any = None,
        pooling: Pooling | None = None,
        precision: Precision = "float32",
        runtime: Runtime | None = None,
    ) -> Self:
        """Load an encoder: 'turnwise-small', 'minilm', 'use-multilingual', a folder, or a Hugging Face id.

        A sentence-transformers folder keeps its pooling; a plain backbone gets mean pooling. A folder of `turnwise
        export` runs without torch on the CPU, with `OMP_NUM_THREADS` threads or one for each core.

        Args:
            name: of the model.
            device: a name such as 'cuda:0' or a torch device; None: a GPU if there is one.
            pooling: replaces the model's own.
            precision: of matrix products in `encode`; 'float16' and 'bfloat16' are faster on a GPU, with almost the
                same vectors.
            runtime: the library that runs an ONNX model, 'onnxruntime' (also if None) or 'openvino', which is faster on
                x86.
        """
        folder = locate_model(name)
        with explaining_damage(folder, ModelError, "save or export the model again"):
            config = EncoderConfig.read(folder)
        if runtime is not None:
            if runtime not in get_args(Runtime):
                raise ModelError(f"unknown runtime {runtime!r}: choose {' or '.join(map(repr, get_args(Runtime)))}")
            if config.exported != "onnx":
                raise ModelError(f"{folder} is not an ONNX model, so {runtime} cannot run it: leave the runtime out")
            config.runtime = runtime
        with without_garbage_collection():
            # torch is imported only if it is needed
            home = "trainable_encoder:Trainable" if config.exported is None else "exported_encoder:Exported"
            kind: type[Self] = import_object(f"turnwise.models.{home}Encoder")
        if not issubclass(kind, cls):
            raise ModelError(
                f"{folder} is exported, and cannot be trained or changed: use the model it was made of, or another one"
            )
        if config.exported is not None and precision != "float32":
            raise ModelError(f"{folder} is exported, and its precision is fixed: leave {precision!r} out")
        encoder = kind.from_folder(folder, config, device, pooling)
        encoder.training_data = load_training_data(folder)
        encoder.name, encoder.origin, encoder.precision = str(name), config.origin, precision
        return encoder

    @classmethod
    @abstractmethod
    def from_folder(cls, folder: Path, config: EncoderConfig, device: Any, pooling: Pooling | None) -> Self:
        """Load what the folder says about the model itself; for the rest see `load`."""

    def save(self, folder: Path | str, card: str | None = None) -> None:
        """Write a folder that `Encoder.load` reads; `SentenceTransformer(folder)` reads it, too, unless it is ONNX.

        `card` is the model card, as Markdown.
        """
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        settings = {"style": self.style, **self._save_model(folder)}
        write_description(folder, settings, self.training_data, card)

    @abstractmethod
    def _save_model(self, folder: Path) -> dict[str, Any]:
        """Write the model itself into an existing folder; return further settings for `turnwise.json`."""


def _check_inputs(items: Sequence[TextOrTurns]) -> None:
    """Raise TypeError unless all items are texts or conversations."""
    for position, item in enumerate(items):
        if isinstance(item, str):
            continue
        if not hasattr(item, "__iter__") or isinstance(item, bytes | Mapping):
            raise TypeError(f"inputs[{position}] is {reprlib.repr(item)}: expected a text, or a list of turns")
        for number, turn in enumerate(item):
            if not isinstance(turn, str | Turn):
                found = f"{reprlib.repr(turn)}: a turn is a string or a Turn, not {type(turn).__name__}"
                raise TypeError(f"inputs[{position}][{number}] is {found}")


def _turns_of(item: TextOrTurns, style: TurnStyle) -> list[tuple[str, str]]:
    """Return (speaker, text) of an input's turns; a text is a conversation of one turn."""
    if isinstance(item, str):
        return [(USER, item)]
    texts = turn_texts(item)
    if style == "roles" and len(item) > 1 and any(isinstance(turn, str) for turn in item):
        raise ValueError("this model distinguishes speakers: give a conversation as Turn objects, not as strings")
    speakers = [turn.speaker if isinstance(turn, Turn) else USER for turn in item]
    return list(zip(speakers, texts, strict=True))


def encoder_fingerprint(encoder: Encoder) -> str:
    """Return a hash of all that determines an encoder's vectors: weights, vocabulary and settings."""
    settings = repr((encoder.pooling, encoder.max_length, encoder.normalise, encoder.style))
    precision = "" if encoder.precision == "float32" else encoder.precision
    return encoder.digest(settings, tokenizer_text(encoder.tokenizer), precision)


def index_fingerprint(encoder: Encoder, max_length: int | None = None) -> str:
    """Return the fingerprint of an `EncoderId`; an ONNX graph has that of the model that it was exported from."""
    longest = min(max_length or encoder.max_length, encoder.max_length)
    settings = repr((encoder.pooling, longest, encoder.style))
    return digest_model(None, encoder.origin or encoder.weights_fingerprint(), settings)
