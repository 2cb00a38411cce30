"""The error that a user can do something about."""


class TurnwiseError(Exception):
    """Something cannot be done as asked; the message says what, where and what to do. The command line prints just that."""
