"""Threads of the Ubuntu channel, along the reply links of the IRC disentanglement corpus (Kummerfeld et al., 2019).

The corpus has logs (`{train,dev,test}/*.ascii.txt`, a message per line) and links (`*.annotation.txt`: `earlier later
-`, with line numbers from 0; a message linked to itself starts a conversation). A thread is a connected component of
the links, as in the authors' own clusters:
messages are what people say or do (`* name does something`), not notices of the channel (`=== name has joined`);
consecutive messages of one person are one turn; a participant's name at the start of a message ("name: …") is removed,
because it would reveal the thread of a reply; a thread ends with its last turn of more than three words, and has three
turns or more.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Set
from itertools import groupby
from pathlib import Path

import numpy as np

from turnwise.core.dialogue import SYSTEM
from turnwise.corpus.readers.shared.annotations import split_of
from turnwise.corpus.source.corpus_source import CorpusSource, Dialogues

_LINK_FILES = tuple(f"{folder}/*.annotation.txt" for folder in ("train", "dev", "test"))
_MESSAGE = re.compile(r"\[\d\d:\d\d\] (?:<([^>]+)>| \* (\S+))(.*)")
_ADDRESSEE = re.compile(r"\s*([^\s:,;>]+)\s*[:,;>]+\s+")


def read(source: CorpusSource) -> Dialogues:
    """Read the folders `train`, `dev` and `test`, in the order of files and first messages; other channels are ignored.

    The speaker of a thread's last turn, the reply to be selected, is 'system'; the others are numbered.
    """
    for path in source.files(*_LINK_FILES):
        if path == source.root:
            reason = "a log and its links are two files: import a folder that contains train, dev or test"
            source.reject(path, None, "file", reason)
            continue
        link_lines = list(source.lines(path))
        log = path.with_name(path.name.replace(".annotation.", ".ascii."))
        if not log.is_file():
            source.reject(path, None, "file", f"its log {log.name} is missing")
            continue
        messages, length = _read_messages(source, log)
        names = {name.casefold() for name, _ in messages.values()}
        for lines in _connected_lines(_parse_links(source, path, link_lines, length), length):
            thread = [messages[line] for line in lines if line in messages]
            stripped = [(name, _strip_addressee(text, names)) for name, text in thread]
            by_name = groupby((message for message in stripped if message[1]), key=lambda message: message[0])
            turns = [(name, " ".join(text for _, text in group)) for name, group in by_name]
            yield from _build_thread(source, log, lines[0], turns)


def _read_messages(source: CorpusSource, log: Path) -> tuple[dict[int, tuple[str, str]], int]:
    """Return name and text of the messages by line from 0, and the number of lines."""
    messages: dict[int, tuple[str, str]] = {}
    number = 0
    for number, line in source.lines(log):
        if "\0" in line:  # rejected here and not as a turn, so that the thread continues without this message
            source.reject(log, number, "turn", "the text contains a NUL character, as binary data does", text=line)
        elif match := _MESSAGE.fullmatch(line):
            messages[number - 1] = match[1] or match[2], match[3]
    return messages, number


def _strip_addressee(text: str, names: Set[str]) -> str:
    """Return a message without the name of a participant at its start."""
    match = _ADDRESSEE.match(text)
    return (text[match.end() :] if match and match[1].casefold() in names else text).strip()


def _parse_links(
    source: CorpusSource, path: Path, link_lines: Iterable[tuple[int, str]], length: int
) -> list[tuple[int, int]]:
    links = []
    for number, line in link_lines:
        with source.guard(path, number):
            earlier, later, _ = line.split()
            link = int(earlier), int(later)
            if not all(0 <= end < length for end in link):
                raise ValueError(f"the log has {length} lines, cannot link {link[0]} to {link[1]}")
            links.append(link)
    return links


def _connected_lines(links: list[tuple[int, int]], length: int) -> Iterator[list[int]]:
    """Yield the lines of each thread; lines without a link were not annotated and are in none."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    if not links:
        return
    earlier, later = np.array(links).T
    graph = coo_array((np.ones(len(links)), (earlier, later)), shape=(length, length))
    threads: dict[int, list[int]] = defaultdict(list)
    labels = connected_components(graph, directed=False)[1]
    for line in np.unique([earlier, later]).tolist():
        threads[int(labels[line])].append(line)
    yield from threads.values()


def _build_thread(source: CorpusSource, log: Path, first: int, turns: list[tuple[str, str]]) -> Dialogues:
    count = len(turns)
    while turns and len(turns[-1][1].split()) <= 3:
        turns.pop()
    if len(turns) < 3:  # a reply and two before it
        source.skipped["threads of fewer than three turns"] += count > 0  # most threads are a single notice
        return
    source.skipped["turns of three words or fewer at a thread's end"] += count - len(turns)
    with source.dialogue(log, first + 1, split_of(log.parent.name)) as builder:
        builder.id = f"{log.parent.name}/{log.name.removesuffix('.ascii.txt')}/{first}"
        for name, text in turns[:-1]:
            builder.add_turn(builder.peer(name), text)
        builder.add_turn(SYSTEM, turns[-1][1])
    yield from builder.result()
