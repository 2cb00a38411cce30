"""Threads of the Ubuntu channel, followed along the reply links of the IRC disentanglement corpus (Kummerfeld et al., 2019).

The corpus has logs (`{train,dev,test}/*.ascii.txt`, a message a line) and links (`*.annotation.txt`: `earlier later -`, lines
counted from 0; a message linked to itself starts a conversation). A thread is what links connect, as in the authors' own clusters.
Here:

- messages are what people say or do (`* name does something`); what the channel says (`=== name has joined`) and notices are none;
- messages of one person in a row are one turn;
- the name of a participant that a message begins with ("name: …") is taken off: it would tell which thread a reply belongs to;
- a thread ends with its last turn of more than three words, and has three turns or more; others are passed over.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from turnwise.core.dialogue import SYSTEM, Dialogue
from turnwise.corpus.intake import Intake
from turnwise.corpus.readers.labels import split_of

#: Turns that a thread has at least: a reply and two before it.
TURNS = 3

_LINKS = tuple(f"{folder}/*.annotation.txt" for folder in ("train", "dev", "test"))
_MESSAGE = re.compile(r"\[\d\d:\d\d\] (?:<([^>]+)>| \* (\S+))(.*)")
_ADDRESS = re.compile(r"\s*([^\s:,;>]+)\s*[:,;>]+\s+")


def read(intake: Intake) -> Iterator[Dialogue]:
    """Reads the folders `train`, `dev` and `test`, in the order of files and first messages; other channels are not read.

    A thread's last turn is the reply to be found and said by 'system'; the others are said by 'speaker_1', 'speaker_2', ….
    """
    for links in intake.files(*_LINKS):
        if links == intake.root:
            intake.reject(
                links, None, "file", "a log and its links are two files: import a folder that holds train, dev or test"
            )
            continue
        linked = list(intake.lines(links))
        log = links.with_name(links.name.replace(".annotation.", ".ascii."))
        if not log.is_file():
            intake.reject(links, None, "file", f"its log {log.name} is missing")
            continue
        messages, length = _messages(intake, log)
        for lines in _connected(_links(intake, links, linked, length), length):
            yield from _thread(intake, log, lines[0], _turns(messages[line] for line in lines if line in messages))


def _messages(intake: Intake, log: Path) -> tuple[dict[int, tuple[str, str]], int]:
    """Who says what, by line from 0, where a line is a message with words; and how many lines there are."""
    said: dict[int, tuple[str, str]] = {}
    number = 0
    for number, line in intake.lines(log):
        if "\0" in line:  # here and not when the turn is made, so that the thread goes on without this message
            intake.reject(log, number, "turn", "the text holds a NUL character, as binary data does", text=line)
        elif match := _MESSAGE.fullmatch(line):
            said[number - 1] = match[1] or match[2], match[3]
    names = {name.casefold() for name, _ in said.values()}

    def unaddressed(text: str) -> str:
        match = _ADDRESS.match(text)
        return (text[match.end() :] if match and match[1].casefold() in names else text).strip()

    worded = ((line, (name, unaddressed(text))) for line, (name, text) in said.items())
    return {line: message for line, message in worded if message[1]}, number


def _links(intake: Intake, path: Path, linked: Iterable[tuple[int, str]], lines: int) -> list[tuple[int, int]]:
    links = []
    for number, line in linked:
        with intake.record(path, number):
            earlier, later, _ = line.split()
            link = int(earlier), int(later)
            if not all(0 <= end < lines for end in link):
                raise ValueError(f"the log has {lines} lines, there is none to link from {link[0]} to {link[1]}")
            links.append(link)
    return links


def _connected(links: list[tuple[int, int]], lines: int) -> Iterator[list[int]]:
    """The lines of each thread; lines without a link, which nobody annotated, are in none."""
    if not links:
        return
    earlier, later = np.array(links).T
    graph = coo_array((np.ones(len(links)), (earlier, later)), shape=(lines, lines))
    threads: dict[int, list[int]] = defaultdict(list)
    labels = connected_components(graph, directed=False)[1]
    for line in np.unique([earlier, later]).tolist():
        threads[int(labels[line])].append(line)
    yield from threads.values()


def _turns(messages: Iterator[tuple[str, str]]) -> list[tuple[str, str]]:
    spoken = groupby(messages, key=lambda message: message[0])
    return [(name, " ".join(text for _, text in group)) for name, group in spoken]


def _thread(intake: Intake, log: Path, first: int, turns: list[tuple[str, str]]) -> Iterator[Dialogue]:
    spoken = len(turns)
    while turns and len(turns[-1][1].split()) <= 3:
        turns.pop()
    if len(turns) < TURNS:
        # most threads are a line of the channel's own, which nobody said
        intake.left_out["threads of fewer than three turns"] += spoken > 0
        return
    intake.left_out["turns of three words or fewer at a thread's end"] += spoken - len(turns)
    with intake.dialogue(log, first + 1, split_of(log.parent.name)) as draft:
        draft.id = f"{log.parent.name}/{log.name.removesuffix('.ascii.txt')}/{first}"
        for name, text in turns[:-1]:
            draft.say(draft.peer(name), text)
        draft.say(SYSTEM, turns[-1][1])
    yield from draft.done()
