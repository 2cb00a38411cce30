"""turnwise: dialogue representations from conversations.

Names are imported when they are first used, so that `import turnwise` stays quick and never pulls in torch.
"""

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from turnwise.corpus.importing import import_corpus
    from turnwise.corpus.store import read_corpus
    from turnwise.dialogue import Dialogue, Slot, Turn

_HOMES = {
    "Dialogue": "turnwise.dialogue",
    "Slot": "turnwise.dialogue",
    "Turn": "turnwise.dialogue",
    "import_corpus": "turnwise.corpus.importing",
    "read_corpus": "turnwise.corpus.store",
}

__all__ = ["Dialogue", "Slot", "Turn", "__version__", "import_corpus", "read_corpus"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'turnwise' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return __all__
