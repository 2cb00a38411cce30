"""Loss functions, re-exported from `turnwise.objectives.losses`."""

from turnwise.objectives import losses as _losses
from turnwise.objectives.losses import *  # noqa: F403

__all__ = [name for name in dir(_losses) if not name.startswith("_")]
