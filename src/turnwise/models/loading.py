"""Models by name, and any object that gives vectors or scores, in the form that evaluation and bulk embedding use."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from turnwise.core import registry
from turnwise.core.dialogue import Turn
from turnwise.core.errors import ModelError
from turnwise.core.imports import explain_missing_packages, import_object
from turnwise.core.types import SupportsEncode, SupportsScore, Vectors, normalise_vectors
from turnwise.corpus.training_data import TrainingData
from turnwise.models.backbone.source import COMPRESSION, Pooling, Runtime, is_reranker, locate_model, short_name
from turnwise.models.encoder import Architecture, Encoder, Precision, encoder_fingerprint
from turnwise.models.exported_encoder import ExportedEncoder
from turnwise.models.identity import digest_model

if TYPE_CHECKING:
    from turnwise.models.trainable_encoder import TrainableEncoder


@dataclass(frozen=True, slots=True)
class ModelUnderTest:
    """A model with what evaluation needs to know of it."""

    name: str  # for reports
    encoder: SupportsEncode | None = None  # None for a re-ranker
    scorer: SupportsScore | None = None  # None for an encoder
    trainable: "TrainableEncoder | None" = None  # the encoder that fine-tuning starts from; None: cannot be trained
    fingerprint: str | None = None  # equal for equal vectors; None if unknown, and then nothing is cached on disk
    backbones: tuple[Architecture | None, ...] = (None,)  # of encoder and re-ranker; None: unknown
    #: Other encoders that belong to it, by name: of the inputs' templates, by their source.
    variants: "Mapping[str, ModelUnderTest]" = field(default_factory=dict)
    training_data: TrainingData | None = None  # what is known of the data it was trained on; None: nothing


def load_model(
    name: str | Path,
    pooling: Pooling | None = None,
    compressed: bool = False,
    precision: Precision = "float32",
    runtime: Runtime | None = None,
    title: str = "",
) -> ModelUnderTest:
    """Load a model by its name.

    Args:
        name: a packaged model ('turnwise-small', 'turnwise-reranker', 'minilm'), a model folder or a Hugging Face id;
            'sentence-transformers:NAME' to encode with that library; 'SCHEME:REST' for a registered loader, such as
            'glove:FILE'; 'module:function' for a Python function from a list of texts to an array.
        pooling: replaces the model's own.
        compressed: apply semantic compression, as configured in the model's folder.
        precision: of matrix products in encoding; see `Encoder.load`.
        runtime: of an ONNX model; see `Encoder.load`.
        title: its name in reports, if that is another one.
    """
    scheme, _, rest = ("", "", "") if isinstance(name, Path) else name.partition(":")
    if rest and (precision != "float32" or runtime is not None):
        raise ModelError(f"{name} is not a model folder: leave the precision and the runtime out")
    if compressed and (rest or pooling is not None):
        raise ModelError(f"{name} cannot be compressed: that takes a trained folder with its own pooling")
    title = title or str(name)
    if rest and scheme in registry.known_names("loader"):
        return wrap_model(registry.find("loader", scheme)(rest), title)
    if rest and not Path(name).exists():
        try:
            return wrap_model(import_object(str(name)), title)
        except ImportError as error:
            raise ModelError(str(error)) from None
    folder = locate_model(name)
    if is_reranker(folder):
        if pooling is not None or compressed or precision != "float32" or runtime is not None:
            raise ModelError(f"{name} is a re-ranker: leave pooling, compression, precision and runtime out")
        from turnwise.models.reranker import Reranker

        return wrap_model(Reranker.load(folder), title)
    if compressed:
        from turnwise.models.compression import CompressedEncoder

        compressing = CompressedEncoder.load(folder, precision=precision, runtime=runtime)
        own, model = wrap_model(compressing.encoder), wrap_model(compressing, f"{title}, compressed")
        return replace(model, backbones=own.backbones, training_data=own.training_data)
    encoder = Encoder.load(folder, pooling=pooling, precision=precision, runtime=runtime)
    encoder.name = str(name)  # instead of its folder, so that indexes say what to load
    model = wrap_model(encoder, title)
    if pooling is not None or not (folder / COMPRESSION).is_dir():
        return model
    from turnwise.models.compression import Compression, TemplateEncoder

    compression = Compression.load(folder / COMPRESSION).to(encoder.device)
    if not compression.fits(encoder):
        return model
    variants = {each: TemplateEncoder(encoder, compression, each) for each in compression.sources}
    return replace(model, variants={source: wrap_model(each) for source, each in variants.items()})


def resolve_model(model: Any, reranker: Any = None, name: str = "") -> ModelUnderTest:
    """Return a model given by its name or as an object (see `wrap_model`), with a re-ranker beside it if one is given.

    `name` replaces the model's own in reports.
    """
    resolved = wrap_model(model) if reranker is None else with_reranker(wrap_model(model), wrap_model(reranker))
    return replace(resolved, name=name or resolved.name)


def wrap_model(model: Any, name: str = "") -> ModelUnderTest:
    """Wrap anything that gives vectors or scores; `name` is for reports.

    That is an `Encoder`, a sentence-transformers model, anything with `encode` or `score`, a function from texts to an
    array, or the name of a model.
    """
    if isinstance(model, ModelUnderTest):
        return model
    if isinstance(model, str):
        return load_model(model)
    name = name or type(model).__name__
    if isinstance(model, Encoder):
        trainable = None if isinstance(model, ExportedEncoder) else cast("TrainableEncoder", model)
        fingerprint, backbones, training = encoder_fingerprint(model), (model.architecture,), model.training_data
        return ModelUnderTest(name, model, None, trainable, fingerprint, backbones, training_data=training)
    if type(model).__module__.startswith("sentence_transformers") and hasattr(model, "encode"):
        fingerprint = digest_model(model, str(model))
        return ModelUnderTest(name, SentenceTransformerEncoder(model), fingerprint=fingerprint)
    if hasattr(model, "description") and hasattr(model, "encode"):
        return ModelUnderTest(name, model, fingerprint=digest_model(None, model.description))
    # a function may give other vectors tomorrow, unless it says that it will not
    own = getattr(model, "fingerprint", None)
    declared = str(own) if own is not None else None
    if not hasattr(model, "encode") and hasattr(model, "score"):
        from turnwise.models.reranker import Reranker, reranker_fingerprint

        if not isinstance(model, Reranker):
            return ModelUnderTest(name, scorer=model, fingerprint=declared)
        backbones, data = (model.backbone.architecture,), model.training_data
        return ModelUnderTest(name, None, model, None, reranker_fingerprint(model), backbones, training_data=data)
    function = getattr(model, "encode", model)
    if not callable(function):
        raise ModelError(f"{name} is not a model: it has no encode(texts) or score(context, candidates)")
    return ModelUnderTest(name, FunctionEncoder(function), fingerprint=declared)


def postprocess_model(model: ModelUnderTest, kind: str, texts: Iterable[str]) -> ModelUnderTest:
    """Transform a model's vectors by a registered post-processor, fitted on the distinct ones of some texts."""
    if model.encoder is None:
        raise ModelError(f"{model.name} gives no vectors to post-process")
    encoder = registry.find("post-processor", kind)(model.encoder, list(dict.fromkeys(texts)))
    known = None if model.fingerprint is None else digest_model(None, model.fingerprint, encoder.description)
    name = f"{model.name}, {kind}"
    return replace(model, name=name, encoder=encoder, scorer=None, trainable=None, fingerprint=known, variants={})


def with_reranker(model: ModelUnderTest, reranker: ModelUnderTest) -> ModelUnderTest:
    """Return an encoder together with a re-ranker that scores candidates."""
    if model.encoder is None:
        raise ModelError(f"{model.name} gives no vectors: a re-ranker goes with an encoder")
    if reranker.scorer is None:
        raise ModelError(f"{reranker.name} is not a re-ranker: give one that scores candidates")
    known, data = None, []
    if model.fingerprint is not None and reranker.fingerprint is not None:
        known = digest_model(None, model.fingerprint, reranker.fingerprint)
    for each in (model, reranker):
        unknown = f"nothing is known of the training data of {short_name(each.name)}"
        data.append(each.training_data or TrainingData(statements=(unknown,)))
    return replace(
        model,
        name=f"{model.name}, re-ranked by {short_name(reranker.name)}",
        scorer=reranker.scorer,
        fingerprint=known,
        backbones=model.backbones + reranker.backbones,
        training_data=TrainingData.union(data),
    )


class SentenceTransformerEncoder:
    """Adapts a sentence-transformers model: turns are joined by its separator, and too long a history loses its head.

    A model without a transformers tokenizer (static embeddings) truncates everything in its own way.
    """

    def __init__(self, model: Any):
        self._model = model

    def encode(self, inputs: Sequence[Any], *, normalise: bool | None = None, max_length: int | None = None) -> Vectors:
        """Return vectors (inputs, size)."""
        separator = getattr(getattr(self._model[0], "tokenizer", None), "sep_token", None)
        texts = [_join_turns(item, f" {separator} " if separator else " ") for item in inputs]
        is_history = np.array([not isinstance(item, str) and len(item) > 1 for item in inputs], np.bool_)
        options = {"normalize_embeddings": bool(normalise), "show_progress_bar": False}
        vectors = np.empty((0, 0), np.float32)
        for histories in (False, True):
            rows = np.flatnonzero(is_history == histories)
            if len(rows):
                with self._truncation(histories, max_length):
                    encoded = self._model.encode([texts[row] for row in rows], **options)
                if not len(vectors):
                    vectors = np.empty((len(inputs), encoded.shape[1]), np.float32)
                vectors[rows] = encoded
        return vectors

    @contextmanager
    def _truncation(self, from_head: bool, max_length: int | None) -> Iterator[None]:
        """Set the model's maximum length and truncation side for a while."""
        model = self._model
        tokenizer: Any = getattr(model[0], "tokenizer", None)
        if not hasattr(tokenizer, "truncation_side"):
            yield
            return
        before = (model.max_seq_length, tokenizer.truncation_side)
        tokenizer.truncation_side = "left" if from_head else before[1]
        if max_length is not None:
            model.max_seq_length = min(max_length, before[0] or max_length)
        try:
            yield
        finally:
            model.max_seq_length, tokenizer.truncation_side = before


class FunctionEncoder:
    """Adapts a function from a list of texts to an array; a history becomes one text, one turn per line."""

    def __init__(self, function: Callable[[list[str]], Any]):
        self._function = function

    def encode(self, inputs: Sequence[Any], *, normalise: bool | None = None, max_length: int | None = None) -> Vectors:
        """Return vectors (inputs, size), not truncated."""
        vectors = np.asarray(self._function([_join_turns(item, "\n") for item in inputs]), np.float32)
        if vectors.ndim != 2 or len(vectors) != len(inputs) or not np.isfinite(vectors).all():
            raise ModelError(
                f"the function returned {vectors.shape} for {len(inputs)} texts: expected finite numbers (texts, size)"
            )
        return normalise_vectors(vectors) if normalise else vectors


def _join_turns(item: Any, separator: str) -> str:
    if isinstance(item, str):
        return item
    return separator.join(turn.text if isinstance(turn, Turn) else turn for turn in item)


def load_sentence_transformer(name: str) -> Any:
    """Load a model with the library sentence-transformers."""
    with explain_missing_packages():
        from sentence_transformers import SentenceTransformer
    try:
        return SentenceTransformer(name)
    except (OSError, ValueError) as error:
        raise ModelError(f"sentence-transformers cannot load {name!r}: {str(error).splitlines()[0]}") from None
