"""Intents, message–reply pairs and sentences written for turnwise (the folder `authored/` of the repository)."""

from turnwise.core.dialogue import USER, peer
from turnwise.corpus.readers.shared.fields import require_text
from turnwise.corpus.source.corpus_source import CorpusSource, Dialogues

_TURN_SEPARATOR = " [SEP] "  # separates the turns of a message that is a conversation history


def read_intents(source: CorpusSource, *, names: bool = False) -> Dialogues:
    """Read `intents.jsonl`, an intent per line; each utterance is a dialogue of one turn.

    Names of intents recur in other domains, so the label is 'domain: intent'.

    Args:
        source: the folder.
        names: the name of an intent, in words, is one more of its utterances.
    """
    for path, line, record in source.records(source.json_lines, "intents.jsonl"):
        with source.guard(path, line):
            label = f"{require_text(record, 'domain')}: {require_text(record, 'intent')}"
            if not isinstance(record["texts"], list):
                raise ValueError("'texts' must be a list")
            texts = [*record["texts"], *([record["intent"].replace("_", " ")] if names else [])]
            for number, text in enumerate(texts, 1):
                with source.dialogue(path, line, "train") as builder:
                    builder.id = f"{line}/{number}"
                    builder.add_turn(USER, text, label)
                yield from builder.result()


def read_pairs(source: CorpusSource) -> Dialogues:
    """Read `pairs.jsonl` (messages with replies) or `products.jsonl` (questions about products with answers).

    A line has a message, which may be a history of several turns, and its reply.
    """
    for path, line, record in source.records(source.json_lines, f"{source.name.removeprefix('authored_')}.jsonl"):
        with source.dialogue(path, line, "train") as builder:
            builder.id = str(line)
            for number, text in enumerate((*require_text(record, "message").split(_TURN_SEPARATOR), record["reply"])):
                builder.add_turn(peer(number % 2 + 1), text)
        yield from builder.result()


def read_sentences(source: CorpusSource) -> Dialogues:
    """Read `sentences.txt`: plain sentences, each a dialogue of one turn."""
    for path in source.files("sentences.txt"):
        for line, text in source.lines(path):
            with source.dialogue(path, line, "train") as builder:
                builder.id = str(line)
                builder.add_turn(USER, text)
            yield from builder.result()
