"""Detect the languages of stores and texts."""

import functools
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from turnwise.corpus.storage.store import Store

#: Languages are detected in pieces of up to this many consecutive texts and characters.
_PIECE_TEXTS, _PIECE_CHARACTERS = 10, 400
_BATCH_PIECES, _MAX_PIECES = 100, 500  # of a batch, and of a source

_UNCLEAR = "und"  # what py3langid returns if it is not sure
_MIN_CONFIDENCE = 0.5

#: What belongs to no language: masks such as [EMAIL], and web addresses.
_NO_LANGUAGE = re.compile(r"\[[A-Z0-9_]+\]|https?://\S+")


def identify_language(text: str, characters: int) -> str | None:
    """Return the language (ISO 639 code) of a text's first characters, or None if it is unclear."""
    language, _ = _language_identifier().classify(_NO_LANGUAGE.sub(" ", text)[:characters])
    return None if language == _UNCLEAR else language


def sample_languages(*sources: "Store | Path | Sequence[str]") -> Counter[str]:
    """Count the languages (ISO 639 codes) of pieces of stores (or their folders) and texts; unclear ones do not count.

    A piece is a few consecutive texts, since single ones are often too short. Pieces are taken evenly from the first
    batches of a store.
    """
    languages: Counter[str] = Counter()
    for source in sources:
        pieces = 0
        for texts in _batches(source):
            starts = np.linspace(0, max(0, len(texts) - _PIECE_TEXTS), _BATCH_PIECES).astype(int)
            for start in np.unique(starts).tolist():
                piece = "\n".join(map(str, texts[start : start + _PIECE_TEXTS]))
                language = identify_language(piece, _PIECE_CHARACTERS)
                if language is not None:
                    languages[language] += 1
                pieces += 1
            if pieces >= _MAX_PIECES:
                break
    return languages


def _batches(source: "Store | Path | Sequence[str]") -> Iterator[Any]:
    """Yield texts as a sequence, or the columns of a store's texts, whose elements are Arrow scalars."""
    if isinstance(source, Sequence):
        yield source
        return
    from turnwise.corpus.storage.store import Store

    store = Store(source) if isinstance(source, Path) else source
    yield from (batch.column("texts").values for batch in store.batches(["texts"]))


@functools.cache
def _language_identifier() -> Any:
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True, min_confidence=_MIN_CONFIDENCE)
