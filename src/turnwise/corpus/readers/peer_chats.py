"""Conversations between people without roles: chitchat, Topical-Chat, CaSiNo, Reddit, self-dialogue."""

from collections.abc import Iterator

from turnwise.core.dialogue import Dialogue, peer
from turnwise.core.errors import CorpusError
from turnwise.corpus.readers.shared.annotations import split_of
from turnwise.corpus.source.corpus_source import CorpusSource

#: The prefix of self-dialogue's columns of sentences.
_SENTENCE = "Answer.sentence"


def read_chitchat(source: CorpusSource) -> Iterator[Dialogue]:
    """Read `dataset.json`, `{id: {messages: [[{text, sender, timestamp}, …]]}}`, with a list per run of one sender.

    Each message is a turn; the step `merge-speakers` joins the runs.
    """
    for path, line, (key, record) in source.records(source.json_object, "dataset.json"):
        with source.dialogue(path, line) as builder:
            builder.id = key
            for run in record["messages"]:
                for message in run:
                    builder.add_turn(builder.peer(message["sender"]), message["text"])
        yield from builder.result()


def read_topical_chat(source: CorpusSource) -> Iterator[Dialogue]:
    """Read `conversations/*.json`, `{id: {content: [{agent, message, sentiment, …}]}}`."""
    for path, line, (key, record) in source.records(source.json_object, "conversations/*.json"):
        with source.dialogue(path, line, split_of(path.stem)) as builder:
            builder.id = key
            for message in record["content"]:
                builder.add_turn(builder.peer(message["agent"]), message["message"])
        yield from builder.result()


def read_casino(source: CorpusSource) -> Iterator[Dialogue]:
    """Read `casino_{train,valid,test}.json`; annotated negotiation strategies become acts.

    Moves such as 'Submit-Deal' are turns, as in the source.
    """
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


def read_reddit(source: CorpusSource) -> Iterator[Dialogue]:
    """Read JSON Lines `{context, response, "context/0", "context/1", …}`, for Reddit and corpora of that layout.

    `context` is what the response replies to; `context/0` precedes it, `context/1` precedes that. The authors are not
    named: two speakers are assumed to alternate.
    """
    for path, line, record in source.records(source.json_lines, "*.json", "*.jsonl", "*.json.gz", "*.jsonl.gz"):
        with source.dialogue(path, line) as builder:
            # a thread has many responses: its id alone would not be unique
            builder.id = f"{source.relative_name(path)}/{line}"
            count = sum(key.startswith("context/") for key in record)
            earlier = [record[f"context/{number}"] for number in reversed(range(count))]
            for position, text in enumerate([*earlier, record["context"], record["response"]]):
                builder.add_turn(peer(1 + position % 2), text)
        yield from builder.result()


def read_self_dialogue(source: CorpusSource, *, drop_blocked_workers: bool = False) -> Iterator[Dialogue]:
    """Read `corpus/TOPIC/*.csv`, a dialogue per row, both parts written by one person.

    Args:
        source: the files to read.
        drop_blocked_workers: leave out the rows of the workers that the authors list in `blocked_workers.txt`.
    """
    blocked: set[str] = set()
    if drop_blocked_workers:
        if source.root.is_file():
            raise CorpusError(f"{source.root} is a file: import the corpus' folder, which has blocked_workers.txt")
        blocked = {line.strip() for _, _, line in source.records(source.lines, "blocked_workers.txt")} - {""}
    for path, line, row in source.records(source.csv_rows, "corpus/*/*.csv"):
        cells = sorted(
            (int(column.removeprefix(_SENTENCE)), cell or "")
            for column, cell in row.items()
            if column.startswith(_SENTENCE) and column.removeprefix(_SENTENCE).isdecimal()
        )
        sentences = [(number, text) for number, text in cells if text.strip()]
        source.skipped["blank cells"] += len(cells) - len(sentences)
        if row.get("WorkerId") in blocked:
            source.skipped["dialogues of blocked workers"] += 1
            source.skipped["utterances of blocked workers"] += len(sentences)
            source.counts.dialogues += 1
            source.counts.utterances += len(sentences)
            continue
        with source.dialogue(path, line) as builder:
            builder.id = row["AssignmentId"] or ""
            for number, text in sentences:
                builder.add_turn(peer(2 - number % 2), text)
        yield from builder.result()
