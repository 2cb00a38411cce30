"""turnwise: dialogue representations from conversations.

Names are imported when they are first used, so that `import turnwise` stays quick and never pulls in torch.
"""

import importlib
from typing import TYPE_CHECKING, Any

from turnwise.version import __version__

if TYPE_CHECKING:
    from turnwise.assist.intents.classifier import IntentClassifier
    from turnwise.assist.responses.responder import Responder
    from turnwise.assist.responses.selector import Selector
    from turnwise.corpus.importing import import_corpus
    from turnwise.corpus.store import read_corpus
    from turnwise.dialogue import Dialogue, Slot, Turn
    from turnwise.encoder import Encoder
    from turnwise.evaluation.evaluating import evaluate
    from turnwise.reranker import Reranker
    from turnwise.training.loop import train
    from turnwise.training.recipe import load_recipe

_HOMES = {
    "Dialogue": "turnwise.dialogue",
    "Encoder": "turnwise.encoder",
    "IntentClassifier": "turnwise.assist.intents.classifier",
    "Reranker": "turnwise.reranker",
    "Responder": "turnwise.assist.responses.responder",
    "Selector": "turnwise.assist.responses.selector",
    "Slot": "turnwise.dialogue",
    "Turn": "turnwise.dialogue",
    "import_corpus": "turnwise.corpus.importing",
    "read_corpus": "turnwise.corpus.store",
    "load_recipe": "turnwise.training.recipe",
    "train": "turnwise.training.loop",
    "evaluate": "turnwise.evaluation.evaluating",
}

__all__ = [
    "Dialogue",
    "Encoder",
    "IntentClassifier",
    "Reranker",
    "Responder",
    "Selector",
    "Slot",
    "Turn",
    "__version__",
    "evaluate",
    "import_corpus",
    "load_recipe",
    "read_corpus",
    "train",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'turnwise' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return __all__
