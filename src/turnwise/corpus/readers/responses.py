"""Response-selection files turned back into dialogues: the context, and the right response where there is one."""

from collections.abc import Iterator

from turnwise.core.dialogue import Dialogue, peer
from turnwise.corpus.intake import Intake
from turnwise.corpus.readers.labels import split_of
from turnwise.corpus.responses import read_candidates


def read(intake: Intake) -> Iterator[Dialogue]:
    """Reads files of the layouts that `turnwise.corpus.responses` tells.

    Negatives are left out; of several right responses the first is the dialogue's; two people are taken to alternate.
    """
    for path in intake.files("*.txt", "*.csv", "test", "train", "valid"):
        for line, candidates in read_candidates(intake, path):
            intake.left_out["negative responses"] += len(candidates.responses) - len(candidates.positives)
            intake.left_out["further right responses"] += max(0, len(candidates.positives) - 1)
            intake.left_out["contexts without a right response (their turns are kept)"] += not candidates.positives
            with intake.dialogue(path, line, split_of(path.stem)) as draft:
                draft.id = f"{intake.name(path)}/{line}"
                for position, text in enumerate((*candidates.context, *candidates.positives[:1])):
                    draft.say(peer(1 + position % 2), text)
            yield from draft.done()
