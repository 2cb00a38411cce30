"""Generate the page `reference/cli.md` from the commands themselves."""

import re
import subprocess
import sys

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

COMMAND = [sys.executable, "-m", "typer", "turnwise.cli", "utils", "docs", "--name", "turnwise"]


def on_files(files: Files, config: MkDocsConfig) -> None:
    """Add the page to those that MkDocs found."""
    listing = subprocess.run(COMMAND, check=True, capture_output=True, text=True).stdout
    listing = re.sub(r"\*\*Commands\*\*:\n\n(?:\* .*\n)+\n", "", listing)  # shortened lists of the sections that follow
    files.append(File.generated(config, "reference/cli.md", content=listing))
