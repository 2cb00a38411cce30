"""The base class of all errors that a user can act on."""


class TurnwiseError(Exception):
    """An operation failed; the message says what is wrong, where, and what to do. The command line prints only it."""
