"""ATIS in the layout of the slot-gated release: `atis/{train,valid,test}/{seq.in,seq.out,label}`."""

from collections.abc import Iterator

from turnwise.core.dialogue import Dialogue
from turnwise.corpus.intake import Intake
from turnwise.corpus.readers.slot_gated import read_slot_gated


def read(intake: Intake) -> Iterator[Dialogue]:
    """Reads the splits; each utterance is a dialogue of one turn. An intent that joins two has a # between them."""
    return read_slot_gated(intake, "atis")
