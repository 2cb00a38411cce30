"""Customer support on Twitter: a CSV file with a tweet per row, its author's side and the tweet that it replies to."""

import html
import re
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Literal

from turnwise.core.dialogue import SYSTEM, USER
from turnwise.corpus.readers.shared.fields import parse_time
from turnwise.corpus.readers.shared.files import require_columns
from turnwise.corpus.readers.shared.message_logs import Message, ReplyTrees, build_dialogue, reply_chains, sort_tree
from turnwise.corpus.source.corpus_source import CorpusSource, Dialogues

_COLUMNS = ("tweet_id", "inbound", "created_at", "text", "in_response_to_tweet_id")
Row = Mapping[str, str | None]

_TIME_FORMAT = "%a %b %d %H:%M:%S %z %Y"
_SPEAKERS = {"true": USER, "false": SYSTEM}
_MENTIONS = re.compile(r"^(?:\s*\.?@\w+)+")  # the accounts that a reply starts with


def read(
    source: CorpusSource, *, order: Literal["paths", "chronological"] = "paths", mentions: bool = False
) -> Dialogues:
    """Read `twcs.csv`: tweet_id, author_id, inbound, created_at, text, response_tweet_id, in_response_to_tweet_id.

    Inbound tweets are the user's, others the system's. in_response_to_tweet_id is the tweet that a tweet replies to; if
    it is not in the file, a conversation begins. Entities such as &amp; are decoded.

    Options:
        order: 'paths': one dialogue per chain of replies, from a first tweet to one without a reply, so the first
            tweets of a conversation with several answers are in several dialogues; 'chronological': one dialogue per
            first tweet, with all direct and indirect replies by time.
        mentions: true: keep the @names at the start of a text.
    """
    trees = ReplyTrees()
    files = source.files("*.csv", "*.csv.gz")
    for number, path in enumerate(files):
        advice = "The reader `table` reads other columns"
        check = partial(require_columns, path, _COLUMNS, advice=advice)
        for line, row in source.csv_rows(path, check=check):
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


def _add_tweet(
    source: CorpusSource, trees: ReplyTrees, path: Path, line: int, row: Row, file: int, mentions: bool
) -> None:
    """Add a tweet; one that cannot be read or has no text is added without a text, because others reply to it."""
    values = {column: row[column] or "" for column in _COLUMNS}
    # a column with missing values, saved again by pandas, has 3.0
    key, reply_to = (values[name].strip().removesuffix(".0") for name in ("tweet_id", "in_response_to_tweet_id"))
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
    text = html.unescape(values["text"])
    text = "" if reason else (text if mentions else _MENTIONS.sub("", text)).strip()
    if key and not trees.add(Message(file, line, time, speaker, text, key=key, reply_to=reply_to)):
        reason = f"the tweet {key} was there before"
    if reason:
        source.reject(path, line, "turn", reason, text=values["text"])
    elif not text:
        source.skipped["tweets without text, apart from mentions"] += 1
