"""Customer support on Twitter: a CSV file with a tweet per row, its author's side and the tweet that it replies to."""

import html
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal

from turnwise.core.dialogue import SYSTEM, USER, Dialogue
from turnwise.core.errors import CorpusError
from turnwise.corpus.readers.shared.message_logs import Message, build_dialogue
from turnwise.corpus.readers.shared.reply_trees import ReplyTrees, reply_chains, sort_tree
from turnwise.corpus.readers.shared.times import parse_time
from turnwise.corpus.source.corpus_source import CorpusSource

_COLUMNS = ("tweet_id", "inbound", "created_at", "text", "in_response_to_tweet_id")
_TIME_FORMAT = "%a %b %d %H:%M:%S %z %Y"
_SPEAKERS = {"true": USER, "false": SYSTEM}

#: The accounts that a reply starts with.
_MENTIONS = re.compile(r"(?:\s*\.?@\w+)+")


def read(
    source: CorpusSource, *, order: Literal["paths", "chronological"] = "paths", mentions: bool = False
) -> Iterator[Dialogue]:
    """Read `twcs.csv`: tweet_id, author_id, inbound, created_at, text, response_tweet_id, in_response_to_tweet_id.

    Inbound tweets are the user's, others the system's. in_response_to_tweet_id is the tweet that a tweet replies to; if
    it is not in the file, a conversation begins. Entities such as &amp; are decoded.

    Args:
        source: the files to read.
        order: 'paths': one dialogue per chain of replies, from a first tweet to one without a reply, so the first
            tweets of a conversation with several answers are in several dialogues; 'chronological': one dialogue per
            first tweet, with all direct and indirect replies by time.
        mentions: true: keep the @names at the start of a text.
    """
    trees = ReplyTrees()
    files = source.files("*.csv", "*.csv.gz")
    for number, path in enumerate(files):
        checked = False
        for line, row in source.csv_rows(path):
            if not checked:
                _check_columns(path, row)
                checked = True
            _add_tweet(source, trees, path, line, row, number, mentions)
    for root, tree in trees.trees():
        sort_tree(tree)
        for number, chain in enumerate(reply_chains(tree) if order == "paths" else [tree]):
            name = f"{root}/{number}" if order == "paths" else root
            messages = [tweet if tweet.text else None for tweet in chain]
            yield from build_dialogue(source, name, messages, files, conversation=root)
    for tweet in trees.cycles():
        reason = "it replies, directly or indirectly, to itself"
        source.reject(files[tweet.file], tweet.line, "turn", reason, text=tweet.text)


def _check_columns(path: Path, row: Mapping[str, str | None]) -> None:
    missing = [column for column in _COLUMNS if column not in row]
    if missing:
        raise CorpusError(
            f"{path.name} has no column {missing[0]!r}; it has {', '.join(map(repr, row))}, expected are"
            f" {', '.join(_COLUMNS)}. The reader `table` reads other columns"
        )


def _add_tweet(
    source: CorpusSource,
    trees: ReplyTrees,
    path: Path,
    line: int,
    row: Mapping[str, str | None],
    file: int,
    mentions: bool,
) -> None:
    """Add a tweet; one that cannot be read or has no text is added without a text, because others reply to it."""
    values = {column: row[column] or "" for column in _COLUMNS}
    key, reply_to = _tweet_id(values["tweet_id"]), _tweet_id(values["in_response_to_tweet_id"])
    speaker = _SPEAKERS.get(values["inbound"].strip().lower(), "")
    time, reason = None, ""
    try:
        time = parse_time(values["created_at"], (_TIME_FORMAT,))
    except ValueError:
        reason = f"cannot parse the time {values['created_at']!r}: expected 'Tue Oct 31 22:10:47 +0000 2017'"
    if not speaker:
        reason = f"'inbound' must be True or False, got {values['inbound']!r}"
    if not key:
        reason = "'tweet_id' is empty"
    text = "" if reason else _clean(values["text"], mentions)
    if key and not trees.add(Message(file, line, time, speaker, text, key=key, reply_to=reply_to)):
        reason = f"the tweet {key} was there before"
    if reason:
        source.counts.utterances += 1
        source.reject(path, line, "turn", reason, text=values["text"])
    elif not text:
        source.skipped["tweets without text, apart from mentions"] += 1


def _tweet_id(value: str) -> str:
    return value.strip().removesuffix(".0")  # a column with missing values, saved again by pandas, has 3.0


def _clean(text: str, mentions: bool) -> str:
    text = html.unescape(text)
    if not mentions and (match := _MENTIONS.match(text)):
        text = text[match.end() :]
    return text.strip()
