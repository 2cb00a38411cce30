"""Customer support on Twitter: a CSV file with a tweet per row, its author's side and the tweet that it replies to."""

import html
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

from turnwise.core.dialogue import SYSTEM, USER, Dialogue
from turnwise.core.errors import CorpusError
from turnwise.corpus.readers.reply_trees import ReplyTrees, reply_chains
from turnwise.corpus.readers.times import parse_time
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
        _sort(tree)
        for number, chain in enumerate(reply_chains(tree) if order == "paths" else [tree]):
            first = next((tweet for tweet in chain if tweet["text"]), None)
            if first is None:
                continue
            with source.dialogue(files[first["file"]], first["line"]) as builder:
                builder.id = f"{root}/{number}" if order == "paths" else root
                builder.conversation = root
                builder.time = first["time"]
                for tweet in chain:
                    builder.path = files[tweet["file"]]
                    if tweet["text"]:
                        builder.add_turn(tweet["speaker"], tweet["text"], line=tweet["line"])
                    else:
                        builder.mark_hole()
            yield from builder.result()
    for tweet in trees.cycles():
        reason = "it replies, directly or indirectly, to itself"
        source.reject(files[tweet["file"]], tweet["line"], "turn", reason, text=tweet["text"])


def _sort(tree: list[dict[str, Any]]) -> None:
    """Sort tweets by time; those without a time follow the tweet that they reply to."""
    by_id = {tweet["id"]: tweet for tweet in tree}

    def key(tweet: dict[str, Any]) -> tuple[float, bool]:
        link: dict[str, Any] | None = tweet
        while link is not None and link["time"] is None:
            link = by_id.get(link["reply_to"])
        return float("-inf") if link is None else link["time"], tweet["time"] is None

    tree.sort(key=key)


def _check_columns(path: Path, row: Mapping[str, Any]) -> None:
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
    tweet: dict[str, Any] = {
        "id": _tweet_id(values["tweet_id"]),
        "reply_to": _tweet_id(values["in_response_to_tweet_id"]),
        "file": file,
        "line": line,
        "time": None,
        "speaker": _SPEAKERS.get(values["inbound"].strip().lower()),
        "text": "",
    }
    reason = ""
    try:
        tweet["time"] = parse_time(values["created_at"], (_TIME_FORMAT,))
    except ValueError:
        reason = f"cannot parse the time {values['created_at']!r}: expected 'Tue Oct 31 22:10:47 +0000 2017'"
    if tweet["speaker"] is None:
        reason = f"'inbound' must be True or False, got {values['inbound']!r}"
    if not tweet["id"]:
        reason = "'tweet_id' is empty"
    if not reason:
        tweet["text"] = _clean(values["text"], mentions)
    if tweet["id"] and not trees.add(tweet):
        reason = f"the tweet {tweet['id']} was there before"
    if reason:
        source.counts.utterances += 1
        source.reject(path, line, "turn", reason, text=values["text"])
    elif not tweet["text"]:
        source.skipped["tweets without text, apart from mentions"] += 1


def _tweet_id(value: str) -> str:
    return value.strip().removesuffix(".0")  # a column with missing values, saved again by pandas, has 3.0


def _clean(text: str, mentions: bool) -> str:
    text = html.unescape(text)
    if not mentions and (match := _MENTIONS.match(text)):
        text = text[match.end() :]
    return text.strip()
