"""Readers by source format; `corpus.registry` finds them by name. May import `core` and `corpus.source`."""
