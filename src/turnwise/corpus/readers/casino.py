"""CaSiNo, campsite negotiations: `split/casino_{train,valid,test}.json`."""

from collections.abc import Iterator

from turnwise.core.dialogue import Dialogue
from turnwise.corpus.readers.annotations import split_of
from turnwise.corpus.source import CorpusSource


def read(source: CorpusSource) -> Iterator[Dialogue]:
    """Read the files; annotated strategies become acts. Moves such as 'Submit-Deal' are turns, as in the source."""
    for path, line, record in source.records(source.json_array, "casino_*.json"):
        with source.dialogue(path, line, split_of(path.stem)) as builder:
            builder.id = str(record["dialogue_id"])
            # annotations are pairs (utterance, strategies) that skip the moves
            annotations = iter(record.get("annotations", ()))
            following = next(annotations, None)
            for message in record["chat_logs"]:
                acts: list[str] = []
                if following and following[0] == message["text"]:
                    acts = following[1].split(",")
                    following = next(annotations, None)
                builder.add_turn(builder.peer(message["id"]), message["text"], acts=acts)
        yield from builder.result()
