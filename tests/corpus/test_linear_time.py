"""Readers, hygiene steps, masking and slot patterns take linear time on long texts that are made to slow them down."""

import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.layouts import BASES
from tests.helpers.reading import try_reading
from turnwise.core.dialogue import Dialogue, Turn
from turnwise.corpus.hygiene.masking import Masker, Masking
from turnwise.corpus.hygiene.personal_data import KINDS
from turnwise.corpus.hygiene.steps import STEPS, make_step
from turnwise.corpus.readers.shared.html_text import html_to_text
from turnwise.corpus.registry import READERS
from turnwise.corpus.slots.detectors import BuiltInDetector, Gazetteer, word_forms

#: What is repeated: the characters that patterns begin with, separate by or look ahead for, and their beginnings.
CHARACTERS = [
    *"aA10.,:;-_'\"()[]{}<>@#$%&*+=~`^|/\\?! \n\t\r\x01\x1f\x0b\u200b\u0301\u00a0\u2028",
    "é",
    "中",
    "٣",
    "😀",
]
BEGINNINGS = [
    *(" \n", " \x1f", " \x01", "\x01\n", "\u00a0 ", "\n\n", "a\n", "a ", "a: ", "a:", ",,", '"a",', "{}", "a\t"),
    *("1 ", "1-", "1.", "1:", "1,", "1/", "12 ", "123 ", "(1", "(030) ", "+49 ", "00", "4111 ", "GB12", "1::", "ab:"),
    *("aa:bb:", "mac: ", "ssn: ", "born on ", "tel: ", "a@", "@a", "@a ", "a@b.", "a@b.co ", "a -", "a at ", "dot "),
    *("a dot b", "(at)", "a.", "http://", "http://a", "www.", "a.b/", "a.b?a=1&", "token=", "[EMAIL] ", "id: "),
    *(
        "<a ",
        '<a href="',
        "<!--",
        "<![",
        "<b>",
        "</b>",
        "<br> ",
        "<script>",
        '<img alt="',
        "&#",
        "&amp;",
        "<v ",
        "<@U1",
    ),
    *("```", "`a", "[a](", "[a](b", "](", "[a]{", "# ", "- ", "> ", "*a", "**a**", "__a", "_a_", "~a", "->", " - "),
    *("From ", "From: a\n", "On 1 a wrote:\n", "> a\n", "-----", "sent from ", "confidential ", "re: ", "=?utf-8?q?"),
    *("## ", "##\n", "00:00 --> 00:01\n", "(x) ", "[12:34] ", "1/2/20, 10:00 - a: b\n", "a(b=", " +++$+++ ", "__eou__"),
    *(
        "Aa ",
        "dear Aa ",
        "mr ",
        "regards, Aa ",
        "my name is a ",
        "pw: ",
        "pin a1 ",
        "1 Aa ",
        "Via Aa ",
        "Aaweg 1, ",
        "1 rue ",
        "Anna ",
        "Anna de ",
        "address: A 1, ",
        "gate code a ",
        "security question a: Aa ",
    ),
    *("one ", "one hundred ", "twenty-", "a hundred ", "point one ", "the first ", "next ", "in may ", "1,000,", "$1"),
]
CHUNKS = [*CHARACTERS, *BEGINNINGS]

#: Time in seconds that is linear in any case, and the largest ratio of the times for a text and one of four times its
#: length; it is 16 if time is quadratic.
NEGLIGIBLE, MAX_RATIO = 0.04, 9


def slow_chunks(
    function: Callable[[str], object], size: int = 1_500, chunks: Sequence[str] = CHUNKS
) -> list[tuple[str, float]]:
    """Return the chunks whose repetition takes more than linear time, and the ratio of times."""
    return [(chunk, ratio) for chunk in chunks if (ratio := time_ratio(function, chunk, size)) > MAX_RATIO]


def time_ratio(function: Callable[[str], object], chunk: str, size: int) -> float:
    def seconds(length: int) -> float:
        text = chunk * (length // len(chunk))
        start = time.process_time()
        function(text)
        return time.process_time() - start

    if seconds(4 * size) < NEGLIGIBLE:
        return 1
    ratios = [seconds(4 * size) / max(min(seconds(size) for _ in range(2)), 1e-4)]
    while ratios[-1] > MAX_RATIO and len(ratios) < 3:  # a single one may be disturbed
        ratios.append(seconds(4 * size) / max(min(seconds(size) for _ in range(2)), 1e-4))
    return min(ratios)


STEP_VALUES = {"minimum-turns": "=2", "maximum-turns": "=2", "maximum-words": "=40"}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.full if name == "automatic-messages" else ()) for name in STEPS]
)
def test_hygiene_steps(name: str) -> None:
    def clean(text: str) -> None:
        dialogue = Dialogue("1", (Turn("user", text + " b"), Turn("system", text + " c d e f g")), "test")
        list(make_step(name + STEP_VALUES.get(name, ""))([dialogue]))

    assert slow_chunks(clean) == []


@pytest.mark.parametrize("kind", KINDS)
def test_masking(kind: str) -> None:
    # the words around a phone number are searched for each of its possible ends
    assert slow_chunks(Masker(Masking(kinds=[kind])).mask, 400 if kind == "phone" else 1_500) == []


def test_slots_and_lists() -> None:
    detector = BuiltInDetector(Gazetteer({"a a": "x", "one hundred": "y"}))
    masker = Masker(Masking(kinds=(), lists={"name": ["a", "a a", "one hundred"]}))
    for function in (word_forms, html_to_text, masker.mask):
        assert slow_chunks(function) == []
    of_slots = [chunk for chunk in CHUNKS if chunk[0].isalnum() or chunk[0] in " \n.,-$"]
    assert slow_chunks(detector.find, 1_000, of_slots) == []


@pytest.mark.parametrize(
    "reader", [pytest.param(name, marks=() if READERS[name].is_log else pytest.mark.full) for name in BASES]
)
@pytest.mark.parametrize("place", ["text", pytest.param("line", marks=pytest.mark.full)])
def test_readers(reader: str, place: str, tmp_path: Path) -> None:
    layout = BASES[reader]
    content = layout.content.decode("utf-8", "surrogateescape")
    is_json = ".json" in layout.main
    texts = (turn.text for dialogue in layout.expected for turn in dialogue.turns)
    value = next((text for text in texts if text in content), None)
    if layout.main.endswith((".gz", ".parquet")) or (value is None if place == "text" else is_json):
        pytest.skip("the file has no such place")

    def read(text: str) -> Any:
        if place == "text":
            assert value is not None
            changed = content.replace(value, value + (json.dumps(text)[1:-1] if is_json else text) + "b", 1)
        else:
            first, _, rest = content.partition("\n")
            changed = f"{first}\n{text}\n{rest}\n{text}"
        return try_reading(reader, layout.write(tmp_path, changed.encode("utf-8", "surrogateescape")), **layout.options)

    assert slow_chunks(read, 1_000) == []


@pytest.mark.parametrize("header", ["From", "Subject", "References", "Date", 'Content-Type: text/plain; charset="'])
def test_headers_of_messages(header: str, tmp_path: Path) -> None:
    path = tmp_path / "a.mbox"

    def read(text: str) -> Any:
        line = header + (": " if ":" not in header else "") + text.replace("\n", "\n ")
        path.write_bytes(f"From a@b.c 1 10:00\nTo: a@b.c\n{line}\n\nhello\n".encode())
        return try_reading("mbox", path)

    assert slow_chunks(read) == []


def test_markdown_beside_training_data(tmp_path: Path) -> None:
    BASES["rasa"].write(tmp_path)

    def read(text: str) -> Any:
        (tmp_path / "README.md").write_text(f"## intent{text}\n##{text}\n- utter{text}", encoding="utf-8")
        return try_reading("rasa", tmp_path)

    assert slow_chunks(read) == []
