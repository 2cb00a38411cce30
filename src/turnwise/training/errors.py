"""What can stop a run."""

from turnwise.errors import TurnwiseError


class TrainingError(TurnwiseError):
    """A run cannot go on; the message says why and how."""


class TrainingInterruptedError(TrainingError):
    """Somebody asked the run to stop; all is saved."""
