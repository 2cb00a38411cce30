"""Readers, a file per source format; `turnwise.corpus.registry` finds them by name. May import `core` and `corpus.source`."""
