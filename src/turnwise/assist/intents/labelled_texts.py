"""Texts with their intents from files that people have: CSV, TSV, JSON lines, Parquet, plain lines, or a store."""

from collections.abc import Sequence
from pathlib import Path

from turnwise.assist.intents.examples import IntentError, Pair
from turnwise.corpus.table_files import TABLE_SUFFIXES, TEXT_FILE_SUFFIXES, read_rows


def read_labelled(
    path: Path, text: str = "text", intent: str = "intent", speakers: Sequence[str] = ("user",)
) -> list[Pair]:
    """Texts and intents of a file, or of the turns of a store; those that have no intent are left out.

    Args:
        path: the file, or the store.
        text: the column of texts.
        intent: the column of intents.
        speakers: whose turns are read of a store.

    Raises:
        TableFileError: if the file cannot be read.
        IntentError: if it is a folder but no store, or nothing in it has an intent.
    """
    if path.is_dir():
        found = _of_store(path, speakers)
    else:
        rows = read_rows(path, (text, intent), hint="Say which one it is by --text and --intent")
        pairs = ((row.optional_text(text), row.optional_text(intent)) for row in rows)
        found = [(said, asked) for said, asked in pairs if said.strip() and asked.strip()]
    if not found:
        raise IntentError(f"{path} has no text with an intent: there is nothing to learn from")
    return found


def read_texts(path: Path, text: str = "text") -> list[str]:
    """Texts of a file: a line each of a .txt file, or a column of a table; blank ones are left out.

    Raises:
        TableFileError: if it cannot be read.
    """
    texts = (
        row.optional_text(text)
        for row in read_rows(path, [text], suffixes=TEXT_FILE_SUFFIXES, hint="Say which one it is by --text")
    )
    return [said for said in texts if said.strip()]


def _of_store(path: Path, speakers: Sequence[str]) -> list[Pair]:
    from turnwise.corpus.store import is_store, read_corpus

    if not is_store(path):
        raise IntentError(f"{path} is a folder, and not a store: name a file ({', '.join(TABLE_SUFFIXES)}) or a store")
    turns = (turn for dialogue in read_corpus(path) for turn in dialogue.turns if turn.speaker in speakers)
    return [(turn.text, turn.intent) for turn in turns if turn.intent]
