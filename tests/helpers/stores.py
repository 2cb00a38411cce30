"""Stores of given dialogues."""

from collections.abc import Iterable
from pathlib import Path

from turnwise import Dialogue
from turnwise.corpus.storage.writing import StoreWriter


def write_store(folder: Path, dialogues: Iterable[Dialogue], **provenance: object) -> Path:
    """Write dialogues to a store; return its folder."""
    with StoreWriter(folder) as writer:
        for dialogue in dialogues:
            writer.write(dialogue)
        writer.commit(provenance)
    return folder
