"""The errors that a user can act on, and suggestions for mistyped names."""

import difflib
from collections.abc import Iterable


class TurnwiseError(Exception):
    """An operation failed; the message says what is wrong, where, and what to do. The command line prints only it."""

    exit_status = 1  # the exit status of the command line


class CorpusError(TurnwiseError):
    """Conversations cannot be imported, fetched, read or written."""


class ModelError(TurnwiseError):
    """A model cannot be loaded, used, changed or exported as requested."""


class EncoderMismatchError(ModelError):
    """Stored vectors were computed by another encoder."""


class RecipeError(TurnwiseError):
    """A recipe has an unknown key or an invalid value."""


class TrainingError(TurnwiseError):
    """A training run or a sweep cannot start or continue."""


class TrainingInterruptedError(TrainingError):
    """The user asked the run to stop; its state is saved."""

    exit_status = 130


class DatasetError(TurnwiseError):
    """A data set is missing, too small, or not in the expected layout."""


class SearchError(TurnwiseError):
    """Vectors, answers or conversations cannot be indexed or searched."""


class IntentError(TurnwiseError):
    """An intent classifier cannot be fitted, used or stored as requested."""


class MapError(TurnwiseError):
    """A map cannot be made, read, written or labelled."""


class ProjectError(TurnwiseError):
    """The files of a project cannot be read or written."""


class MissingPackageError(TurnwiseError, ImportError):
    """A package of an extra is not installed; the message says how to install it."""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return a question with the known name that is closest to a mistyped one, such as ' Did you mean dse?', or ''."""
    spellings = {each.casefold(): each for each in known}
    close = difflib.get_close_matches(name.casefold(), spellings, n=1, cutoff=0.6)
    return f" Did you mean {spellings[close[0]]}?" if close else ""


def first_line(error: Exception) -> str:
    """Return the first line of a library's error message."""
    return str(error).strip().splitlines()[0]
