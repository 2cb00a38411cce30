"""Training: recipes, the data pipeline, the training loop, checkpoints, distribution and fine-tuning.

May import `core`, `corpus`, `models` and `objectives`.
"""

from turnwise.core.errors import TurnwiseError


class TrainingError(TurnwiseError):
    """A training run cannot start or continue."""


class TrainingInterruptedError(TrainingError):
    """The user asked the run to stop; its state is saved."""

    exit_status = 130


class ProcessLostError(TrainingError):
    """Another process of the job is gone; the run can resume from its last checkpoint."""
