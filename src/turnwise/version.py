"""The version, at the bottom of the house so that every room can say it."""

__version__ = "0.1.0"
