"""Imported first in a process, it makes the packages that REFUSED lists look as if they were not installed."""

import importlib.machinery
import os
import sys
from collections.abc import Sequence
from types import ModuleType

REFUSED = set(os.environ["REFUSED"].split())


class RefusingFinder(importlib.machinery.PathFinder):
    """Finds no module of the refused packages."""

    @classmethod
    def find_spec(
        cls, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname.partition(".")[0] in REFUSED:
            return None
        return super().find_spec(fullname, path, target)


# other finders, such as those of editable installations, come before and find these packages nowhere
sys.meta_path[sys.meta_path.index(importlib.machinery.PathFinder)] = RefusingFinder
