"""Helpers shared by the tests."""

from pathlib import Path

#: The root of the repository; subprocesses need it on their path to import these helpers.
ROOT = Path(__file__).parents[2]
