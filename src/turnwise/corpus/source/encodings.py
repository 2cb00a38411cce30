"""Detecting the encoding of a text file."""

import codecs
import gzip
from pathlib import Path
from typing import IO

SAMPLE_SIZE = 1 << 18  # the bytes at the beginning of a file that are looked at
DETECT = "detect"  # as the name of an encoding: to be detected for each file
_BYTE_ORDER_MARKS = {codecs.BOM_UTF8: "utf-8", codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}

#: Encodings of text that is not UTF-8. Code pages for Latin script other than cp1252 cannot be distinguished from it.
_OTHER_ENCODINGS = ["cp1252", "cp1251", "cp1253", "shift_jis", "gb18030", "big5", "euc_kr"]

_MIN_EVIDENCE = 20  # bytes above 127 that a sample needs to tell these from each other


def open_decompressed(path: Path) -> IO[bytes]:
    """Open a file for reading, decompressed if its name ends in .gz."""
    return gzip.open(path) if path.suffix == ".gz" else path.open("rb")  # type: ignore[return-value]


def read_sample(path: Path) -> bytes:
    """Return the beginning of a file."""
    with open_decompressed(path) as file:
        return file.read(SAMPLE_SIZE)


def detect_encoding(sample: bytes) -> str:
    """Return the encoding of the text that begins with `sample`; UTF-8 if most lines are, as a few may be damaged."""
    for mark, encoding in _BYTE_ORDER_MARKS.items():
        if sample.startswith(mark):
            return encoding
    even, odd = sample[::2].count(0), sample[1::2].count(0)
    if max(even, odd) > len(sample) / 8 and min(even, odd) < max(even, odd) / 8:
        return "utf-16-le" if odd > even else "utf-16-be"
    lines = sample.splitlines()
    if len(sample) == SAMPLE_SIZE:  # the last line may end within a character
        del lines[-1:]
    foreign = [line for line in lines if not line.isascii()]
    if sum("\ufffd" not in line.decode(errors="replace") for line in foreign) * 2 >= len(foreign):
        return "utf-8"
    if sum(byte > 127 for line in foreign for byte in line) < _MIN_EVIDENCE:
        return "cp1252"
    from charset_normalizer import from_bytes

    best = from_bytes(b"\n".join(foreign), cp_isolation=_OTHER_ENCODINGS).best()
    return best.encoding if best else "cp1252"
