"""Identification of a text's language."""

import functools
import re
from typing import Any

_UNCLEAR = "und"  # what py3langid returns if it is not sure

#: What belongs to no language: masks such as [EMAIL], and web addresses.
_NO_LANGUAGE = re.compile(r"\[[A-Z0-9_]+\]|https?://\S+")


def identify_language(text: str, characters: int) -> str | None:
    """Return the language (ISO 639 code) of a text's first characters, or None if it is unclear."""
    language, _ = _language_identifier().classify(_NO_LANGUAGE.sub(" ", text)[:characters])
    return None if language == _UNCLEAR else language


@functools.cache
def _language_identifier() -> Any:
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True, min_confidence=0.5)
