"""Dialogues on disk for a second pass, when a stream can be read only once."""

import pickle
from collections.abc import Iterable, Iterator
from tempfile import TemporaryFile

from turnwise.core.dialogue import Dialogue


def spool(dialogues: Iterable[Dialogue]) -> Iterator[Dialogue]:
    """Read all dialogues into a temporary file, then return an iterator over them; memory stays constant."""
    file = TemporaryFile()  # noqa: SIM115 (closed after the second pass)
    for dialogue in dialogues:
        pickle.dump(dialogue, file, pickle.HIGHEST_PROTOCOL)
    file.seek(0)

    def replay() -> Iterator[Dialogue]:
        with file:
            while True:
                try:
                    yield pickle.load(file)
                except EOFError:
                    return

    return replay()
