"""The encoder: texts and conversations in, vectors out.

`Encoder` is what all encoders have in common, and needs NumPy only. `TrainableEncoder` runs a transformer with torch,
`ExportedEncoder` what `turnwise export` wrote, without torch; `Encoder.load` imports the one that a folder needs.
"""

import reprlib
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt

from turnwise.core.dialogue import USER, Turn, turn_texts
from turnwise.core.errors import ModelError
from turnwise.core.files import write_json
from turnwise.core.imports import import_object, without_garbage_collection
from turnwise.core.progress import Progress, silent
from turnwise.core.types import Vectors, normalise_vectors
from turnwise.corpus.training_data import TrainingData, save_training_data
from turnwise.models.backbone.inputs import AnyTokenizer, Composer, TurnStyle, collect_tokens, run_tokenizer
from turnwise.models.backbone.ragged import RaggedTokens, Tokens, token_batches
from turnwise.models.backbone.source import (
    DESCRIPTION_FILE,
    Pooling,
    Runtime,
    load_training_data,
    locate_model,
)
from turnwise.models.encoder_config import EncoderConfig, ExportKind, check_runtime, describe_export
from turnwise.models.identity import EncoderId, digest_model, tokenizer_text
from turnwise.version import __version__

#: What can be encoded: a text, or a conversation so far, newest turn last.
TextOrTurns = str | Sequence[str] | Sequence[Turn]

#: The turns of conversations: speakers and texts.
_Histories = list[list[tuple[str, str]]]

#: Texts tokenised at a time.
TOKENISE_BATCH = 32_768

#: Of matrix products.
Precision = Literal["float32", "bfloat16", "float16"]

#: The type, layers and hidden units of a backbone, such as ('bert', 12, 768).
Architecture = tuple[str, int, int]

#: The classes of encoders, by the kind of model in a folder; imported when they are needed, because one needs torch.
_CLASSES: dict[ExportKind | None, str] = {
    None: "turnwise.models.trainable_encoder:TrainableEncoder",
    "onnx": "turnwise.models.exported_encoder:ExportedEncoder",
    "static": "turnwise.models.exported_encoder:ExportedEncoder",
}


class Encoder(ABC):
    """Encodes texts and conversations.

    Attributes:
        pooling: how token states become a vector.
        max_length: tokens of an input, including special ones.
        normalise: whether vectors have length 1 by default.
        style: how the turns of a conversation are joined.
        training_data: what is known of the texts that it was trained on; None: nothing.
        name: what it was loaded as, for messages; empty if it was not loaded.
        origin: of an ONNX graph, the fingerprint of the weights that it was exported from; None: unknown.
        precision: of matrix products in `encode`.
    """

    def __init__(self, pooling: Pooling, max_length: int, normalise: bool, style: TurnStyle):
        self.pooling: Pooling = pooling
        self.max_length = max_length
        self.normalise = normalise
        self.style: TurnStyle = style
        self.training_data: TrainingData | None = None
        self.name = ""
        self.origin: str | None = None
        self.precision: Precision = "float32"

    # ---- what it runs

    @property
    @abstractmethod
    def hidden(self) -> int:
        """The size of a vector."""

    @property
    @abstractmethod
    def tokenizer(self) -> AnyTokenizer:
        """The tokenizer."""

    @property
    @abstractmethod
    def device(self) -> str:
        """The device that it runs on, as torch names it."""

    @property
    @abstractmethod
    def architecture(self) -> Architecture:
        """The type, layers and hidden units of the backbone."""

    @abstractmethod
    def configuration(self) -> str:
        """Return the configuration of the backbone, for fingerprints."""

    @abstractmethod
    def digest(self, *texts: str) -> str:
        """Return a hash of all weights and of texts."""

    @abstractmethod
    def weights_fingerprint(self) -> str:
        """Return a hash of weights and vocabulary: the same on every device, with every version of a library.

        Configuration and tokenizer are left out where it is up to a library how they are written.
        """

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

    # ---- encoding

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
        portions = self._tokenise_ahead(items, max_length)
        return self._encode_portions(portions, len(items), unit, batch_tokens, progress)

    def _tokenise_ahead(self, items: Sequence[TextOrTurns], max_length: int | None) -> Iterator[RaggedTokens]:
        """Yield the token sequences of inputs in portions; a thread tokenises the next ones in the meantime."""
        starts = range(0, len(items), TOKENISE_BATCH)
        if len(starts) < 2:
            yield self.tokenise(items, max_length)
            return
        with ThreadPoolExecutor(1) as thread:  # one: the tokenizer has threads of its own
            ahead: deque[tuple[_Histories | None, Future[list[Any]]]] = deque()
            for start in starts:
                histories, texts = self._split(items[start : start + TOKENISE_BATCH])
                ahead.append((histories, thread.submit(run_tokenizer, self.tokenizer, texts)))
                if len(ahead) > 2:
                    histories, tokens = ahead.popleft()
                    yield self._compose(histories, tokens.result(), max_length)
            for histories, tokens in ahead:
                yield self._compose(histories, tokens.result(), max_length)

    def encode_sequences(
        self,
        sequences: Sequence[Tokens],
        *,
        normalise: bool | None = None,
        batch_tokens: int | None = None,
        progress: Progress = silent,
    ) -> Vectors:
        """Return vectors (sequences, hidden) of token sequences from `tokenise`; see `encode`."""
        unit = self.normalise if normalise is None else normalise
        return self._encode_portions([RaggedTokens.of(sequences)], len(sequences), unit, batch_tokens, progress)

    def _encode_portions(
        self,
        portions: Iterable[RaggedTokens],
        total: int,
        normalise: bool,
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
            for encoded in self._encode_batches(batches(), normalise):
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
        histories, texts = self._split(items)
        return self._compose(histories, run_tokenizer(self.tokenizer, texts), max_length)

    def _split(self, items: Sequence[TextOrTurns]) -> tuple["_Histories | None", list[str]]:
        """Return the turns of inputs with their speakers (None: all inputs are texts), and all texts."""
        texts = [item for item in items if isinstance(item, str)]
        if len(texts) == len(items) and self.style == "separator":
            return None, texts
        histories = [_turns_of(item, self.style) for item in items]
        return histories, [text for turns in histories for _, text in turns]

    def _compose(self, histories: "_Histories | None", encoded: list[Any], max_length: int | None) -> RaggedTokens:
        """Return the token sequences of what `_split` returned, from `run_tokenizer` of the texts."""
        longest = min(max_length or self.max_length, self.max_length)
        composer, tokens = self.composer, collect_tokens(encoded)
        if histories is None:
            return composer.texts(tokens, longest)
        if not composer.roles:
            counts = np.array([len(turns) for turns in histories])
            return composer.histories(tokens, counts, np.full(len(counts), longest))
        each = iter(tokens)
        return RaggedTokens.of(
            [composer.history([next(each) for _ in turns], [who for who, _ in turns], longest) for turns in histories]
        )

    # ---- loading and saving

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
        """Load an encoder: 'turnwise-small', 'minilm', a folder, or a Hugging Face id.

        A sentence-transformers folder keeps its pooling; a plain backbone gets mean pooling. A folder of `turnwise
        export` runs without torch on the CPU, with `OMP_NUM_THREADS` threads or one for each core. Static folders may
        also be model2vec's.

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
        config = EncoderConfig.read(folder)
        if runtime is not None:
            check_runtime(runtime, folder, config)
            config.runtime = runtime
        with without_garbage_collection():
            kind: type[Self] = import_object(_CLASSES[config.exported])
        if not issubclass(kind, cls):
            raise ModelError(
                f"{folder} is {describe_export(config.exported)}, which runs but cannot be trained or changed: use the "
                "model that it was exported from"
            )
        encoder = kind.from_folder(folder, config, device, pooling)
        encoder.set_precision(precision)
        encoder.training_data = load_training_data(folder)
        encoder.name, encoder.origin = str(name), config.origin
        return encoder

    def set_precision(self, precision: Precision) -> None:
        """Set the precision of matrix products in `encode`."""
        self.precision = precision

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
        settings: dict[str, Any] = {"turnwise": __version__, "style": self.style}
        write_json(folder / DESCRIPTION_FILE, settings | self._save_model(folder))
        save_training_data(self.training_data, folder)
        if card is not None:
            (folder / "README.md").write_text(card, encoding="utf-8")

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


def encoder_fingerprint(encoder: Encoder) -> str:
    """Return a hash of all that determines an encoder's vectors: weights, vocabulary and settings."""
    settings = (encoder.pooling, encoder.max_length, encoder.normalise, encoder.style)
    precision = "" if encoder.precision == "float32" else encoder.precision
    definition = (encoder.configuration(), tokenizer_text(encoder.tokenizer))
    return encoder.digest(repr(settings), *definition, precision)


def index_fingerprint(encoder: Encoder, max_length: int | None = None) -> str:
    """Return the fingerprint of an `EncoderId`; `max_length` are the tokens that it reads (None: its limit).

    An ONNX graph has that of the model that it was exported from.
    """
    longest = min(max_length or encoder.max_length, encoder.max_length)
    settings = repr((encoder.pooling, longest, encoder.style))
    return digest_model(None, encoder.origin or encoder.weights_fingerprint(), settings)
