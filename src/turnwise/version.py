"""The version of turnwise and its packages of weights, and of the software that it runs with."""

__version__ = "0.2.0"


def describe_environment(*packages: str) -> dict[str, str]:
    """Return the versions of turnwise, Python and some packages, and the kind of machine."""
    import platform
    from importlib.metadata import version

    own = {"turnwise": __version__, "python": platform.python_version(), "machine": platform.machine()}
    return own | {package: version(package) for package in packages}
