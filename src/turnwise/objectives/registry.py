"""The objectives by the names that recipes know."""

import typing
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from turnwise.core.errors import TurnwiseError
from turnwise.core.options import checked
from turnwise.objectives.dialoguecse import DialogueCSE
from turnwise.objectives.dse import DSE
from turnwise.objectives.masked_language import MaskedLanguage
from turnwise.objectives.objective import Objective
from turnwise.objectives.pairsupcon import PairSupCon
from turnwise.objectives.post_training import PostTraining
from turnwise.objectives.response_selection import ResponseSelection
from turnwise.objectives.siamese import Siamese
from turnwise.objectives.simcse import SimCSE
from turnwise.objectives.tadse import TaDSE
from turnwise.objectives.tod_bert import TODBERT
from turnwise.objectives.utterance_manipulation import Deletion, Insertion, Search
from turnwise.objectives.wmdc import WMDC

OBJECTIVES: dict[str, type[Any]] = {
    "dse": DSE,
    "wmdc": WMDC,
    "dialoguecse": DialogueCSE,
    "tadse": TaDSE,
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


def options_of(name: str) -> set[str]:
    """What an objective can be told."""
    if name not in OBJECTIVES:
        raise TurnwiseError(f"there is no objective {name!r}: choose from {', '.join(OBJECTIVES)}")
    return {field.name for field in fields(OBJECTIVES[name])}


def make_objective(name: str, options: Mapping[str, Any]) -> Objective:
    """An objective with its options, each checked; lists of a YAML file become tuples."""
    known = options_of(name)
    for option in options:
        if option not in known:
            raise TurnwiseError(f"objective {name} has no option {option!r}: it has {', '.join(sorted(known))}")
    hints = typing.get_type_hints(OBJECTIVES[name])
    made: Objective = OBJECTIVES[name](
        **{key: checked(f"objectives.{name}.{key}", hints[key], value) for key, value in options.items()}
    )
    if getattr(made, "temperature", 1.0) <= 0:
        raise TurnwiseError(f"objectives.{name}.temperature={made.temperature}: needs to be above 0")  # type: ignore[union-attr]
    return made
