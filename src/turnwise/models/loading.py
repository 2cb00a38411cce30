"""What is judged: an encoder of ours, a sentence-transformers model, a re-ranker, or any function from texts to vectors."""

import hashlib
import importlib
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from turnwise.core.dialogue import Dialogue, Turn
from turnwise.core.errors import TurnwiseError
from turnwise.core.types import SupportsEncode, SupportsScore
from turnwise.corpus.slots.template import ONE_MARK, SlotMarks
from turnwise.evaluation.reporting.cells import short
from turnwise.models.backbone.backbone import Backbone
from turnwise.models.backbone.pooled import PooledBackbone
from turnwise.models.backbone.pooling import Pooling
from turnwise.models.backbone.source import locate
from turnwise.models.compression import Compression, Source
from turnwise.models.encoder import COMPRESSION, Encoder
from turnwise.models.reranker import Reranker, is_reranker
from turnwise.papers.baselines.glove import GloVe
from turnwise.papers.baselines.registry import postprocess

#: What the five papers' figures are of, unless a table says otherwise: BERT-base.
_PAPERS_BACKBONE = ("bert", 12, 768)


class ModelError(TurnwiseError):
    """A model cannot be judged; the message says why and how."""


@dataclass(frozen=True, slots=True)
class Judged:
    """A model, as far as evaluation is concerned.

    Attributes:
        name: for reports.
        encoder: gives vectors; None for a re-ranker alone.
        scorer: gives scores of candidates; None for an encoder alone.
        trainable: what fine-tuning starts from; None where there is nothing that we can train.
        templates: gives the vectors of inputs' templates, by where these come from; empty where it has learnt none.
        templates_fingerprint: the same for the same vectors of templates, of models of one fingerprint; None where that cannot be
            known, or there are none.
        marks: what stands for slots in the templates that it has learnt.
        fingerprint: the same for the same vectors; None where that cannot be known, and then nothing is kept on disk.
        remark: how it differs from the model of the papers' tables.
    """

    name: str
    encoder: SupportsEncode | None
    scorer: SupportsScore | None
    trainable: Encoder | None
    fingerprint: str | None
    remark: str
    templates: Mapping[Source, SupportsEncode] = field(default_factory=dict)
    templates_fingerprint: str | None = None
    marks: SlotMarks = ONE_MARK


def load_model(name: str, pooling: Pooling | None = None, compressed: bool = False) -> Judged:
    """Loads what is to be judged by its name.

    Args:
        name: 'minilm', a model folder or a Hugging Face id; 'sentence-transformers:NAME' to encode by that library;
            'glove:FILE' for averaged word vectors; 'module:function' for a Python function from a list of texts to an array.
        pooling: instead of the model's own.
        compressed: draw vectors towards those of templates, as the model's folder says how.

    Raises:
        ModelError: if there is no such model, or it cannot be compressed.
    """
    kind, _, rest = name.partition(":")
    if compressed and (rest or pooling is not None):
        raise ModelError(
            f"{name} cannot be compressed: that takes a folder that `turnwise train` wrote, pooled as it was trained"
        )
    if kind == "sentence-transformers" and rest:
        return judged(_sentence_transformer(rest), name)
    if kind == "glove" and rest:
        return judged(GloVe(Path(rest)), name)
    if rest and not Path(name).exists():
        return judged(_function(kind, rest), name)
    return load_folder(name, name, pooling, compressed)


def load_folder(folder: str | Path, name: str, pooling: Pooling | None = None, compressed: bool = False) -> Judged:
    """Loads an encoder of ours with all that its folder says of it, or a re-ranker.

    Args:
        folder: or 'minilm', or a Hugging Face id.
        name: for reports.
        pooling: instead of the model's own.
        compressed: draw vectors towards those of templates, as the folder says how.

    Raises:
        ModelError: if a re-ranker is to be pooled or compressed.
    """
    if is_reranker(locate(folder)):
        if pooling is not None or compressed:
            raise ModelError(f"{name} is a re-ranker: it gives no vectors that could be pooled or compressed")
        return judged(Reranker.load(folder), name)
    encoder = Encoder.load(folder, pooling=pooling, compressed=compressed)
    if compressed:
        # what is compressed is compressed once, and training would not see it
        return replace(judged(encoder, f"{name}, compressed"), trainable=None)
    place = locate(folder) / COMPRESSION
    if pooling is not None or not place.is_dir():
        return judged(encoder, name)
    compression = Compression.load(place).to(encoder.backbone.device)
    sides = {source: TemplateSide(encoder, compression, source) for source in compression.sources}
    known = _digest(_weights(compression), compression.templates_description())
    return replace(judged(encoder, name), templates=sides, templates_fingerprint=known)


class TemplateSide:
    """A model's vectors of the templates of inputs, as semantic compression mixes them in."""

    def __init__(self, encoder: Encoder, compression: Compression, source: Source):
        self._encoder = encoder
        self._compression = compression
        self._source: Source = source

    def encode(
        self, inputs: Sequence[Any], *, normalise: bool | None = None, max_length: int | None = None
    ) -> npt.NDArray[np.float32]:
        """Vectors of length 1 (inputs, hidden)."""
        utterances = np.empty((0, self._encoder.hidden), np.float32)
        if self._source == "retrieved":
            utterances = self._encoder.encode(inputs, normalise=True, max_length=max_length)
        return self._encoder.template_vectors(
            inputs, utterances, self._compression, self._source, max_length=max_length
        )


def judged(model: Any, name: str = "") -> Judged:
    """Anything that gives vectors or scores, as evaluation wants it.

    Args:
        model: an `Encoder`, a sentence-transformers model, anything with `encode` or `score`, or a function from texts to an array.
        name: for reports.

    Raises:
        ModelError: if it is none of these.
    """
    if isinstance(model, Judged):
        return model
    name = name or type(model).__name__
    if isinstance(model, Encoder):
        trainable = None if isinstance(model.backbone, PooledBackbone) else model
        return Judged(name, model, None, trainable, fingerprint(model), _remark(model.backbone), marks=model.marks)
    if isinstance(model, Reranker):
        return Judged(name, None, model, None, reranker_fingerprint(model), _remark(model.backbone))
    if type(model).__module__.startswith("sentence_transformers") and hasattr(model, "encode"):
        remark = "another model than the paper's"
        return Judged(name, SentenceTransformerEncoder(model), None, None, _digest(_weights(model), str(model)), remark)
    if hasattr(model, "description") and hasattr(model, "encode"):
        return Judged(name, model, None, None, _digest([], model.description), "another model than the paper's")
    if hasattr(model, "encode"):
        return Judged(
            name, FunctionEncoder(model.encode), None, None, _own_fingerprint(model), "another model than the paper's"
        )
    if hasattr(model, "score"):
        return Judged(name, None, model, None, _own_fingerprint(model), "another model than the paper's")
    if callable(model):
        return Judged(
            name, FunctionEncoder(model), None, None, _own_fingerprint(model), "another model than the paper's"
        )
    raise ModelError(
        f"{name} cannot be judged: it has neither encode(texts) nor score(context, candidates), and is no function"
    )


def postprocessed(subject: Judged, kind: str, texts: Sequence[str]) -> Judged:
    """A model whose vectors are whitened or sent through a flow, fitted on some texts.

    Raises:
        ModelError: if it gives no vectors.
    """
    if subject.encoder is None:
        raise ModelError(f"{subject.name} gives no vectors to post-process")
    encoder = postprocess(subject.encoder, kind, texts)
    known = _digest([], subject.fingerprint, encoder.description) if subject.fingerprint is not None else None
    return Judged(f"{subject.name}, {kind}", encoder, None, None, known, subject.remark)


def postprocessed_on(subject: Judged, kind: str, corpus: Iterable[Dialogue]) -> Judged:
    """A model whose vectors are whitened or sent through a flow, fitted on the turns of a corpus, each text once.

    Raises:
        ModelError: if it gives no vectors.
    """
    return postprocessed(
        subject, kind, list(dict.fromkeys(turn.text for dialogue in corpus for turn in dialogue.turns))
    )


def with_reranker(subject: Judged, reranker: Judged) -> Judged:
    """A pair of models: the one gives vectors, the other scores of candidates.

    Raises:
        ModelError: if the first gives no vectors, or the second no scores.
    """
    if subject.encoder is None:
        raise ModelError(f"{subject.name} gives no vectors: a re-ranker goes with an encoder")
    if reranker.scorer is None:
        raise ModelError(
            f"{reranker.name} is no re-ranker: give one that scores candidates, such as `turnwise train ums` writes"
        )
    known = None
    if subject.fingerprint is not None and reranker.fingerprint is not None:
        known = _digest([], subject.fingerprint, reranker.fingerprint)
    return replace(
        subject,
        name=f"{subject.name}, re-ranked by {short(reranker.name)}",
        scorer=reranker.scorer,
        fingerprint=known,
        remark=subject.remark or reranker.remark,
    )


def fingerprint(encoder: Encoder) -> str:
    """A hash of all that determines an encoder's vectors: weights, vocabulary, pooling, the joining of turns, lengths."""
    settings = (encoder.pooling, encoder.max_length, encoder.normalise, encoder.style)
    mixture = encoder.compression.description() if encoder.compression is not None else ""
    words = json.dumps(vocabulary(encoder.backbone.tokenizer), sort_keys=True)
    return _digest(_weights(encoder), repr(settings), encoder.backbone.config.to_json_string(), words, mixture)


def reranker_fingerprint(reranker: Reranker) -> str:
    """A hash of all that determines a re-ranker's scores: weights, heads, vocabulary, lengths."""
    settings = (sorted(reranker.heads), reranker.max_length, reranker.window)
    words = json.dumps(vocabulary(reranker.backbone.tokenizer), sort_keys=True)
    return _digest(_weights(reranker), repr(settings), reranker.backbone.config.to_json_string(), words)


def vocabulary(tokenizer: Any) -> dict[str, Any]:
    """All that determines a text's tokens, but where they are cut and how they are padded: using a tokenizer changes that."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        return {"kind": type(tokenizer).__name__, "model": tokenizer.get_vocab()}
    known: dict[str, Any] = json.loads(backend.to_str())
    return {name: value for name, value in known.items() if name not in ("truncation", "padding")}


class SentenceTransformerEncoder:
    """A sentence-transformers model; the turns of a history are joined by its separator, and what is too long loses its head.

    A text, or a history of one turn, is cut on the side on which the model cuts. One without a tokenizer of transformers' (such as
    one of static vectors) cuts everything in its own way.
    """

    def __init__(self, model: Any):
        self._model = model

    def encode(
        self, inputs: Sequence[Any], *, normalise: bool | None = None, max_length: int | None = None
    ) -> npt.NDArray[np.float32]:
        """Vectors (inputs, size)."""
        separator = getattr(getattr(self._model[0], "tokenizer", None), "sep_token", None)
        texts = [_joined(item, f" {separator} " if separator else " ") for item in inputs]
        several = np.array([not isinstance(item, str) and len(item) > 1 for item in inputs], np.bool_)
        found: list[npt.NDArray[np.float32]] = []
        for histories in (False, True):
            rows = np.flatnonzero(several == histories)
            if len(rows):
                with self._cut(histories, max_length):
                    chosen = [texts[row] for row in rows]
                    found.append(
                        self._model.encode(chosen, normalize_embeddings=bool(normalise), show_progress_bar=False)
                    )
        back = np.argsort(np.argsort(several, kind="stable"))
        return np.asarray(np.concatenate(found or [np.empty((0, 0), np.float32)]), np.float32)[back]

    @contextmanager
    def _cut(self, from_head: bool, max_length: int | None) -> Iterator[None]:
        """Has the model cut inputs to so many tokens, perhaps from their heads, for a while."""
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
    """A function from a list of texts to an array; a history reaches it as one text, a turn a line, newest last."""

    def __init__(self, function: Callable[[list[str]], Any]):
        self._function = function

    def encode(
        self, inputs: Sequence[Any], *, normalise: bool | None = None, max_length: int | None = None
    ) -> npt.NDArray[np.float32]:
        """Vectors (inputs, size); where to cut a text is the function's own affair."""
        vectors = np.asarray(self._function([_joined(item, "\n") for item in inputs]), np.float32)
        if vectors.ndim != 2 or len(vectors) != len(inputs) or not np.isfinite(vectors).all():
            raise ModelError(
                f"the function gave {vectors.shape} for {len(inputs)} texts: expected (texts, size) finite numbers"
            )
        if normalise:
            vectors = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
        return vectors


def _joined(item: Any, separator: str) -> str:
    return (
        item
        if isinstance(item, str)
        else separator.join(turn.text if isinstance(turn, Turn) else turn for turn in item)
    )


def _sentence_transformer(name: str) -> Any:
    try:
        from sentence_transformers import SentenceTransformer
    except ImportError:
        raise ModelError("sentence-transformers is not installed: pip install 'turnwise[compare]'") from None
    try:
        return SentenceTransformer(name)
    except (OSError, ValueError) as error:
        raise ModelError(f"sentence-transformers cannot load {name!r}: {str(error).splitlines()[0]}") from None


def _function(module: str, name: str) -> Any:
    if "" not in sys.path:
        sys.path.insert(0, "")  # a module beside the user, as for `python -m`
    try:
        found = importlib.import_module(module)
    except ImportError as error:
        raise ModelError(f"the module {module!r} cannot be imported: {error}") from None
    if not hasattr(found, name):
        raise ModelError(f"the module {module!r} has no {name!r}")
    return getattr(found, name)


def _weights(model: Any) -> list[Any]:
    return [tensor for _, tensor in sorted(model.state_dict().items())]


def _digest(tensors: list[Any], *texts: str) -> str:
    digest = hashlib.sha256()
    for tensor in tensors:
        digest.update(f"{tuple(tensor.shape)}{tensor.dtype}".encode())
        digest.update(tensor.detach().float().cpu().contiguous().numpy().tobytes())
    for text in texts:
        digest.update(text.encode())
    return digest.hexdigest()


def _own_fingerprint(model: Any) -> str | None:
    """What the model says of itself: of a function we cannot know whether it gives the same vectors tomorrow."""
    own = getattr(model, "fingerprint", None)
    return str(own) if own is not None else None


def _remark(backbone: Backbone) -> str:
    shape = (backbone.config.model_type, backbone.layers, backbone.hidden)
    if shape == _PAPERS_BACKBONE:
        return ""
    return f"another backbone ({shape[0]} of {shape[1]} layers and {shape[2]} units; the paper's is BERT-base)"
