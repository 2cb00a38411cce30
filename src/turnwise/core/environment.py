"""What figures were taken with."""

import platform
from importlib.metadata import version

from turnwise.version import __version__


def environment(*packages: str) -> dict[str, str]:
    """The versions of turnwise, Python and some packages, and the kind of machine."""
    own = {"turnwise": __version__, "python": platform.python_version(), "machine": platform.machine()}
    return own | {package: version(package) for package in packages}
