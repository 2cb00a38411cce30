"""The kinds of detectors, and how one is made again from what it was written as."""

from typing import Any

from turnwise.corpus.slots.built_in import BuiltInDetector
from turnwise.corpus.slots.detector import Detector, DetectorError
from turnwise.corpus.slots.spacy_model import SpacyDetector

_KINDS = {kind.KIND: kind for kind in (BuiltInDetector, SpacyDetector)}


def detector_from(json: dict[str, Any]) -> Detector:
    """The detector that `to_json` wrote.

    Raises:
        DetectorError: if it is of no known kind, lacks something, or needs a spaCy model that is not installed.
    """
    kind = _KINDS.get(json.get("kind", ""))
    if kind is None:
        raise DetectorError(
            f"there is no detector of kind {json.get('kind')!r}, only {', '.join(_KINDS)}: update turnwise"
        )
    try:
        return kind.from_json(json)
    except KeyError as error:
        raise DetectorError(
            f"a detector of kind {kind.KIND!r} needs {error}: make the store with detected slots anew"
        ) from None
