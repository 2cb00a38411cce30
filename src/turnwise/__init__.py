"""turnwise: dialogue representations from conversations.

Names are imported when they are first used, so that `import turnwise` stays quick and never pulls in torch.
"""

import importlib
import os
from typing import TYPE_CHECKING, Any

from turnwise.core.imports import explain_missing_packages, without_garbage_collection
from turnwise.version import __version__

if TYPE_CHECKING:
    from turnwise.assist.intents.classifier import IntentClassifier as IntentClassifier
    from turnwise.assist.responses.responder import Responder as Responder
    from turnwise.assist.responses.selector import Selector as Selector
    from turnwise.core.dialogue import Dialogue as Dialogue
    from turnwise.core.dialogue import Slot as Slot
    from turnwise.core.dialogue import Turn as Turn
    from turnwise.corpus.importing.pipeline import import_corpus as import_corpus
    from turnwise.corpus.storage.corpus import read_corpus as read_corpus
    from turnwise.corpus.storage.writing import write_store as write_store
    from turnwise.evaluation.runner import evaluate as evaluate
    from turnwise.models.encoder import Encoder as Encoder
    from turnwise.models.integrations import EncoderTransformer as EncoderTransformer
    from turnwise.models.integrations import MtebEncoder as MtebEncoder
    from turnwise.models.reranker import Reranker as Reranker
    from turnwise.training.loop import train as train
    from turnwise.training.recipe import load_recipe as load_recipe

# onnxruntime reads this when it is imported, and otherwise reports its use to its maker
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

#: The module of each public name.
_HOMES = {
    "Dialogue": "turnwise.core.dialogue",
    "Encoder": "turnwise.models.encoder",
    "EncoderTransformer": "turnwise.models.integrations",
    "IntentClassifier": "turnwise.assist.intents.classifier",
    "MtebEncoder": "turnwise.models.integrations",
    "Reranker": "turnwise.models.reranker",
    "Responder": "turnwise.assist.responses.responder",
    "Selector": "turnwise.assist.responses.selector",
    "Slot": "turnwise.core.dialogue",
    "Turn": "turnwise.core.dialogue",
    "import_corpus": "turnwise.corpus.importing.pipeline",
    "read_corpus": "turnwise.corpus.storage.corpus",
    "write_store": "turnwise.corpus.storage.writing",
    "load_recipe": "turnwise.training.recipe",
    "train": "turnwise.training.loop",
    "evaluate": "turnwise.evaluation.runner",
}

__all__ = [*_HOMES, "__version__"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'turnwise' has no attribute {name!r}")
    with explain_missing_packages(), without_garbage_collection():
        return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return __all__
