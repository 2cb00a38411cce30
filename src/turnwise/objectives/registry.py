"""The objectives by their names in recipes."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from pydantic import TypeAdapter

from turnwise.core.validation import InvalidKeyError, check_keys, explaining_errors
from turnwise.objectives.anchor import Anchor
from turnwise.objectives.dialoguecse import DialogueCSE, Siamese
from turnwise.objectives.dse import DSE
from turnwise.objectives.labelled import Labelled
from turnwise.objectives.masked_language import MaskedLanguage
from turnwise.objectives.objective import Objective
from turnwise.objectives.pairs import Pairs
from turnwise.objectives.pairsupcon import PairSupCon
from turnwise.objectives.post_training import PostTraining
from turnwise.objectives.simcse import SimCSE
from turnwise.objectives.tadse import TaDSE
from turnwise.objectives.tod_bert import TODBERT
from turnwise.objectives.ums import Deletion, Insertion, ResponseSelection, Search
from turnwise.objectives.wmdc import WMDC

OBJECTIVES: dict[str, type[Any]] = {
    "dse": DSE,
    "wmdc": WMDC,
    "dialoguecse": DialogueCSE,
    "tadse": TaDSE,
    "labelled": Labelled,
    "pairs": Pairs,
    "anchor": Anchor,
    "simcse": SimCSE,
    "pairsupcon": PairSupCon,
    "tod-bert": TODBERT,
    "siamese": Siamese,
    "masked-language": MaskedLanguage,
    "post-training": PostTraining,
    "response-selection": ResponseSelection,
    "insertion": Insertion,
    "deletion": Deletion,
    "search": Search,
}


def options_of(name: str) -> tuple[str, ...]:
    """Return the names of an objective's options."""
    if name not in OBJECTIVES:
        raise InvalidKeyError("", f"has no objective {name!r}: choose from {', '.join(OBJECTIVES)}")
    return tuple(field.name for field in fields(OBJECTIVES[name]))


def make_objective(name: str, options: Mapping[str, Any]) -> Objective:
    """Create an objective with checked options; lists of a YAML file become tuples."""
    check_keys(options, options_of(name))
    with explaining_errors():
        objective: Objective = TypeAdapter(OBJECTIVES[name]).validate_python(dict(options))
    return objective
