"""Response-selection files with every candidate kept, right or wrong: what a re-ranker learns from a corpus' own negatives.

Other methods take what is said for what was answered and would learn from the wrong answers: the reader `responses` is theirs.
"""

from collections.abc import Iterator

from turnwise.core.dialogue import RIGHT_RESPONSE, WRONG_RESPONSE, Dialogue, peer
from turnwise.corpus.intake import Intake
from turnwise.corpus.readers.labels import split_of
from turnwise.corpus.responses import read_candidates


def read(intake: Intake) -> Iterator[Dialogue]:
    """Reads files of the layouts that `turnwise.corpus.responses` tells: for re-rankers alone, since wrong answers are kept.

    Each candidate is a dialogue: the context, in which two people are taken to alternate, and the candidate, whose intent is
    'right response' or 'wrong response'.
    """
    for path in intake.files("*.txt", "*.csv", "test", "train", "valid"):
        for line, candidates in read_candidates(intake, path):
            for number, (response, right) in enumerate(zip(candidates.responses, candidates.labels, strict=True), 1):
                with intake.dialogue(path, line, split_of(path.stem)) as draft:
                    draft.id = f"{intake.name(path)}/{line}/{number}"
                    for position, text in enumerate(candidates.context):
                        draft.say(peer(1 + position % 2), text)
                    spoken = len(draft.turns)
                    draft.say(
                        peer(1 + len(candidates.context) % 2), response, RIGHT_RESPONSE if right else WRONG_RESPONSE
                    )
                    if not 0 < spoken < len(draft.turns):
                        raise ValueError("a context and a response with words are expected")
                yield from draft.done()
