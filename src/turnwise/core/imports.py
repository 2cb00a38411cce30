"""Importing what a user names on the command line."""

import importlib
import sys
from typing import Any


def import_object(name: str) -> Any:
    """Return what `module:name` names, also from a module in the working directory.

    Raises:
        ImportError: if there is no such module, or it has no such name.
    """
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
