"""What is looked up by name although a higher layer may define it: suites, tasks, model loaders and post-processors.

Each entry says where something is defined, as `module:attribute`; the module is imported when the name is used. Names
can therefore be checked before anything large is imported. `add` makes an entry for what another package defines.
"""

import importlib
from typing import Any, Literal

from turnwise.core.errors import TurnwiseError, did_you_mean

Kind = Literal["suite", "task", "loader", "post-processor"]

_PROTOCOLS = "turnwise.evaluation.evaluation_protocols:PROTOCOLS"
_APPLICATION_PROTOCOLS = "turnwise.assist.evaluation_tasks:PROTOCOLS"

_PLACES: dict[Kind, dict[str, str]] = {
    # functions from the name to a `turnwise.evaluation.suites.Suite`
    "suite": dict.fromkeys(("dse", "dialoguecse", "tadse", "diaeval", "ums"), "turnwise.papers.suites:make_suite"),
    # mappings of protocols by name, among them those of the task
    "task": {
        **dict.fromkeys(("intents", "out-of-scope"), _PROTOCOLS),
        "abstention": _APPLICATION_PROTOCOLS,
        **dict.fromkeys(("responses", "reranking"), _PROTOCOLS),
        "selection": _APPLICATION_PROTOCOLS,
        **dict.fromkeys(("coherence", "actions", "inference", "retrieval", "sts", "nli", "geometry"), _PROTOCOLS),
    },
    # functions from REST of a model's name SCHEME:REST to what `turnwise.models.loading.wrap_model` accepts
    "loader": {
        "glove": "turnwise.papers.baselines.glove:GloVe",
        "sentence-transformers": "turnwise.models.loading:load_sentence_transformer",
    },
    # functions from an encoder and texts to an encoder with a `description` of all that determines its vectors
    "post-processor": {
        "flow": "turnwise.papers.baselines.postprocessing:FlowPostprocessor",
        "whitening": "turnwise.papers.baselines.postprocessing:WhiteningPostprocessor",
    },
}


def add(kind: Kind, name: str, place: str) -> None:
    """Make a name available; `place` is `module:attribute`: `add("loader", "mine", "my_package:MyEncoder")`."""
    _PLACES[kind][name] = place


def known_names(kind: Kind) -> tuple[str, ...]:
    """Return the names of a kind, in the order in which reports list them."""
    return tuple(_PLACES[kind])


def check_name(kind: Kind, name: str) -> None:
    """Raise a TurnwiseError if there is no such name."""
    known = known_names(kind)
    if name not in known:
        raise TurnwiseError(f"there is no {kind} {name!r}: choose from {', '.join(known)}.{did_you_mean(name, known)}")


def find(kind: Kind, name: str) -> Any:
    """Import and return what a name stands for; raises a TurnwiseError if there is no such name."""
    check_name(kind, name)
    module, _, attribute = _PLACES[kind][name].partition(":")
    return getattr(importlib.import_module(module), attribute)
