"""Helpers shared by the tests."""

from pathlib import Path

#: The root of the repository; subprocesses need it on their path to import these helpers.
ROOT = Path(__file__).parents[2]

#: Seconds after which something counts as hanging, even on a machine that is busy with other work.
HANG_SECONDS = 600
