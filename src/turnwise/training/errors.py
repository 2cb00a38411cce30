"""What can stop a run."""

from turnwise.core.errors import TurnwiseError


class TrainingError(TurnwiseError):
    """A run cannot go on; the message says why and how."""


class TrainingInterruptedError(TrainingError):
    """Somebody asked the run to stop; all is saved."""


class ProcessLostError(TrainingError):
    """Another process of the job is gone; the run goes on from its last checkpoint."""
