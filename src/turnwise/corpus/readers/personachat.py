"""PersonaChat in its release's text layout: lines `N utterance<TAB>reply<TAB><TAB>candidates`; 1 starts a dialogue."""

import re
from collections.abc import Iterator
from pathlib import Path

from turnwise.core.dialogue import Dialogue, peer
from turnwise.corpus.readers.shared.annotations import split_of
from turnwise.corpus.source.corpus_source import CorpusSource

_LINE = re.compile(r"(\d+) (.*)", re.DOTALL)
_PERSONA = ("your persona:", "partner's persona:")


def read(source: CorpusSource, *, variant: str = "none_original") -> Iterator[Dialogue]:
    """Read `{train,valid,test}_VARIANT.txt`.

    Args:
        source: the files to read.
        variant: which of the release's files; they contain the same dialogues with different personas, which are not
            turns.
    """
    for path in source.files(f"*_{variant}.txt"):
        for number, block in enumerate(_read_blocks(source, path)):
            with source.dialogue(path, block[0][0], split_of(path.stem)) as builder:
                builder.id = f"{path.stem}/{number}"
                for line, text in block:
                    if text.startswith(_PERSONA):
                        source.skipped["persona lines"] += 1
                        continue
                    utterance, _, rest = text.partition("\t")
                    reply, _, _candidates = rest.partition("\t")
                    if utterance != "__SILENCE__":  # the other speaker begins
                        builder.add_turn(peer(1), utterance, line=line)
                    builder.add_turn(peer(2), reply, line=line)
            yield from builder.result()


def _read_blocks(source: CorpusSource, path: Path) -> Iterator[list[tuple[int, str]]]:
    block: list[tuple[int, str]] = []
    for number, line in source.lines(path):
        match = _LINE.fullmatch(line)
        if not match:
            if line.strip():
                source.reject(path, number, "turn", "expected a number, a space and a text", text=line)
            continue
        if match[1] == "1" and block:
            yield block
            block = []
        block.append((number, match[2]))
    if block:
        yield block
