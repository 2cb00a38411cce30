"""Threads of the Ubuntu channel, followed along the reply links of the IRC disentanglement corpus (Kummerfeld et al., 2019).

The corpus has logs (`*.ascii.txt`, a message a line) and links (`*.annotation.txt`: `earlier later -`, lines counted from 0; a
message linked to itself starts a conversation). A thread is what links connect, as in the authors' own clusters. Here:

- messages are what people say or do (`* name does something`); what the channel says (`=== name has joined`) and notices are none;
- messages of one person in a row are one turn;
- the name of a participant that a message begins with ("name: …") is taken off: it would tell which thread a reply belongs to;
- a thread ends with its last turn of more than three words, and has three turns or more; others are passed over.
"""

import re
from collections import defaultdict
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from turnwise.corpus.intake import Intake
from turnwise.dialogue import SYSTEM, Dialogue, Turn, peer

#: Turns that a thread has at least: a reply and two before it.
TURNS = 3

_MESSAGE = re.compile(r"\[\d\d:\d\d\] (?:<([^>]+)>| \* (\S+))(.*)")
_ADDRESS = re.compile(r"\s*([^\s:,;>]+)\s*[:,;>]+\s+")


def read_threads(intake: Intake, folder: Path, split: str) -> Iterator[Dialogue]:
    """The threads of a folder of logs, in the order of files and first messages.

    The last turn is the reply to be found and said by 'system'; the others are said by 'speaker_1', 'speaker_2', ….
    """
    for links in sorted(folder.glob("*.annotation.txt")):
        log = links.with_name(links.name.replace(".annotation.", ".ascii."))
        if not log.is_file():
            intake.reject(links, None, "file", f"its log {log.name} is missing")
        messages = _messages(intake, log)
        for first, lines in _connected(_links(intake, links, len(messages)), len(messages)):
            turns = _turns(messages[line] for line in lines)
            while turns and len(turns[-1][1].split()) <= 3:
                turns.pop()
            if len(turns) >= TURNS:
                yield _dialogue(f"{log.name}/{first}", turns, split)


def _messages(intake: Intake, log: Path) -> list[tuple[str, str]]:
    """Who says what, by line; nobody and nothing where a line is no message."""
    found = [_MESSAGE.fullmatch(line) for _, line in intake.lines(log)]
    said = [(match[1] or match[2], match[3]) if match else ("", "") for match in found]
    names = {name.casefold() for name, _ in said}

    def unaddressed(text: str) -> str:
        match = _ADDRESS.match(text)
        return (text[match.end() :] if match and match[1].casefold() in names else text).strip()

    return [(name, unaddressed(text)) for name, text in said]


def _links(intake: Intake, path: Path, lines: int) -> list[tuple[int, int]]:
    links = []
    for number, line in intake.lines(path):
        with intake.record(path, number):
            earlier, later, _ = line.split()
            link = int(earlier), int(later)
            if not all(0 <= end < lines for end in link):
                raise ValueError(f"the log has {lines} lines, there is none to link from {link[0]} to {link[1]}")
            links.append(link)
    return links


def _connected(links: list[tuple[int, int]], lines: int) -> Iterator[tuple[int, list[int]]]:
    """The lines of each thread, and the first of them; lines without a link, which nobody annotated, are in none."""
    if not links:
        return
    earlier, later = np.array(links).T
    graph = coo_array((np.ones(len(links)), (earlier, later)), shape=(lines, lines))
    threads: dict[int, list[int]] = defaultdict(list)
    labels = connected_components(graph, directed=False)[1]
    for line in np.unique([earlier, later]).tolist():
        threads[int(labels[line])].append(line)
    for members in threads.values():
        yield members[0], members


def _turns(messages: Iterator[tuple[str, str]]) -> list[tuple[str, str]]:
    spoken = groupby((message for message in messages if message[1]), key=lambda message: message[0])
    return [(name, " ".join(text for _, text in group)) for name, group in spoken]


def _dialogue(identity: str, turns: list[tuple[str, str]], split: str) -> Dialogue:
    numbers: dict[str, int] = {}
    earlier = [Turn(peer(numbers.setdefault(name, len(numbers) + 1)), text) for name, text in turns[:-1]]
    return Dialogue(identity, (*earlier, Turn(SYSTEM, turns[-1][1])), "irc_ubuntu", split)
