"""The responder: retrieval by situation, folding and damping of answers, deduplication, and crash safety."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from tests.helpers.bag_of_words import BagOfWords
from tests.helpers.families import nudged
from turnwise import Dialogue, Responder, Turn
from turnwise.assist.responses.responder import DAMPING, FOLDING_SIMILARITY, Answer, rank_answers, read_answers
from turnwise.assist.search.table import SearchHit
from turnwise.cli import app
from turnwise.core.errors import CorpusError, EncoderMismatchError, SearchError
from turnwise.core.text import normalise_text

PLACES = ("Bremen", "Kiel", "Ulm", "Trier", "Jena", "Hof")


def dialogue(number: int, place: str, source: str = "logs", split: str = "train") -> Dialogue:
    turns = (
        ("user", f"is there a train to {place} tomorrow"),
        ("system", f"yes the train to {place} leaves at noon"),
        ("user", f"book me a seat for {place}"),
        ("system", f"your seat to {place} is booked"),
        ("user", "thanks a lot"),
        ("system", "you are welcome" if number % 2 else "You are welcome "),
    )
    return Dialogue(f"d{number}", tuple(Turn(speaker, text) for speaker, text in turns), source, split)


DIALOGUES = [dialogue(number, place) for number, place in enumerate(PLACES)]


@pytest.fixture
def responder(tmp_path: Path) -> Responder:
    made = Responder.open(tmp_path / "responses", BagOfWords())
    made.index(DIALOGUES)
    return made


def test_answer_to_the_same_situation_is_first(responder: Responder) -> None:
    for place in PLACES:
        first = responder.suggest([f"is there a train to {place} tomorrow"])[0]
        assert first.text == f"yes the train to {place} leaves at noon"
        assert first.similarity == pytest.approx(1, abs=1e-5)
        assert (first.turn, first.speaker, first.source, first.split) == (1, "system", "logs", "train")
        assert first.dialogue == f"d{PLACES.index(place)}"
        assert first.rerank is None


def test_texts_turns_and_dialogues_are_equivalent(responder: Responder) -> None:
    whole = DIALOGUES[2]
    before = whole.turns[:3]
    queries = [before, [turn.text for turn in before], Dialogue("x", before)]
    assert responder.suggest(queries[0]) == responder.suggest(queries[1]) == responder.suggest(queries[2])
    assert responder.suggest(before)[0].text == whole.turns[3].text
    assert responder.inputs(before) == (before[-1:], before)
    assert responder.inputs(before[:1]) == (before[:1],)
    vectors = responder.encoder.encode(responder.inputs(before), normalise=True)
    assert responder.suggest(before, vectors=vectors) == responder.suggest(before)


def test_row_vector_is_the_sum_of_newest_turn_and_newest_turns(responder: Responder) -> None:
    rows = responder.table.read(["vector", "turn"], {"dialogue": "d1"}).to_pylist()
    conversation_turns, encoder = DIALOGUES[1].turns, BagOfWords()
    for row in rows:
        first = max(0, row["turn"] - 3)
        parts = {conversation_turns[row["turn"] - 1 : row["turn"]], conversation_turns[first : row["turn"]]}
        expected = encoder.encode(list(parts)).sum(0)
        np.testing.assert_allclose(row["vector"], expected / np.linalg.norm(expected), atol=1e-5)
    assert sorted(row["turn"] for row in rows) == [1, 3, 5]


def test_indexing_again_adds_nothing_and_encodes_nothing(responder: Responder, tmp_path: Path) -> None:
    rows = sorted(responder.table.read(["key", "text"]).to_pylist(), key=lambda row: row["key"])
    encoder = BagOfWords()
    again = Responder.open(tmp_path / "responses", encoder)
    before = encoder.encoded
    done = again.index(DIALOGUES)
    assert (done.dialogues, done.given, done.added, done.present) == (6, 18, 0, 18)
    assert encoder.encoded == before
    more = again.index([*DIALOGUES, dialogue(6, "Wismar")])
    assert (more.added, more.present) == (3, 18)
    stored = sorted(again.table.read(["key", "text"]).to_pylist(), key=lambda row: row["key"])
    assert [row for row in stored if row in rows] == rows
    assert len(stored) == 21


def test_same_dialogue_id_in_two_sources(responder: Responder) -> None:
    assert responder.index([dialogue(0, "Bremen", source="other")]).added == 3


def test_other_speakers_and_first_turns(tmp_path: Path) -> None:
    responder = Responder.open(tmp_path, BagOfWords())
    opening = Dialogue("o", (Turn("speaker_1", "good morning everybody"), Turn("speaker_2", "hello you")))
    assert responder.index([opening]).given == 0
    assert responder.index([opening], speakers=["speaker_1", "speaker_2"]).added == 2
    assert responder.suggest(["good morning"])[0].text in ("good morning everybody", "hello you")
    # the first turn of a dialogue is found by its own words
    assert responder.suggest(["good morning everybody"], where={"turn": 0})[0].similarity == pytest.approx(1, abs=1e-5)


def test_repeated_answers_are_merged_and_counted(responder: Responder) -> None:
    suggestions = responder.suggest(DIALOGUES[0].turns[:5], top=50)
    texts = [normalise_text(each.text) for each in suggestions]
    assert len(texts) == len(set(texts))
    welcome = next(each for each in suggestions if normalise_text(each.text) == "you are welcome")
    assert welcome.count == 6
    assert all(each.count == 1 for each in suggestions if each is not welcome)


def test_filters(responder: Responder) -> None:
    responder.index([dialogue(9, "Bremen", source="it's", split="test")])
    queries = ["is there a train to Bremen tomorrow"]
    assert {each.dialogue for each in responder.suggest(queries, top=20, where={"source": "it's"})} == {"d9"}
    assert {each.turn for each in responder.suggest(queries, top=20, where={"turn": [1, 3], "split": "train"})} == {
        1,
        3,
    }
    assert {each.dialogue for each in responder.suggest(queries, where="dialogue = 'd3'")} == {"d3"}
    assert responder.suggest(queries, where={"source": "' OR true --"}) == []
    with pytest.raises(SearchError, match="no column 'colour'"):
        responder.suggest(queries, where={"colour": "red"})


def test_answers_of_other_customers_are_masked(responder: Responder) -> None:
    text = "Dear Mr Osgood, your parcel 402918374 is on its way to 12 Elm Tree Road, Reading RG1 5AB"
    responder.index(
        [Dialogue("private", (Turn("user", "where is my zeppelin"), Turn("system", text)), "logs", "train")]
    )
    first = responder.suggest(["where is my zeppelin"])[0]
    assert first.text == "Dear Mr [NAME], your parcel [NUMBER] is on its way to [ADDRESS]"
    responder.add([Answer("call 0800 496 0123 about zeppelins", after=("where is my zeppelin",))])
    assert "call 0800 496 0123 about zeppelins" in [
        each.text for each in responder.suggest(["where is my zeppelin"], top=5)
    ]


def test_canned_answers(responder: Responder) -> None:
    answers = [
        "our desk is open from nine to five",
        Answer("call the desk", after=("my bag is lost",), source="desk", intent="lost"),
    ]
    assert responder.add(answers).added == 2
    assert responder.add([*answers, answers[0]]).added == 0
    first = responder.suggest(["my bag is lost"])[0]
    assert (first.text, first.source, first.dialogue, first.turn) == ("call the desk", "desk", None, None)
    assert responder.suggest(["when is the desk open"])[0].text == answers[0]
    assert responder.suggest(["when is the desk open"], where={"intent": "lost"})[0].text == "call the desk"


def test_reranker_orders_and_reads_the_whole_conversation(responder: Responder) -> None:
    class Longest:
        queries: Any = None

        def score(self, context: Sequence[Any], candidates: Sequence[str]) -> np.ndarray:
            self.queries = context
            return np.array([len(candidate) / 100 for candidate in candidates])

    responder.reranker = Longest()
    conversation_turns = ["hello", "hello", *[turn.text for turn in DIALOGUES[0].turns[:3]]]
    suggestions = responder.suggest(conversation_turns, top=10)
    assert responder.reranker.queries == conversation_turns
    assert [each.rerank for each in suggestions] == [len(each.text) / 100 for each in suggestions]
    assert suggestions[0].text == "yes the train to Bremen leaves at noon"
    assert suggestions[0].score == suggestions[0].rerank


def test_empty_table(tmp_path: Path) -> None:
    responder = Responder.open(tmp_path, BagOfWords())
    with pytest.raises(SearchError, match="has no answers"):
        responder.suggest(["hello"])
    assert responder.index([]).given == 0


@pytest.mark.parametrize("conversation_turns", ["hello", [], [" "], [3], [None]])
def test_invalid_conversations(responder: Responder, conversation_turns: Any) -> None:
    with pytest.raises(SearchError):
        responder.suggest(conversation_turns)


def test_invalid_arguments(responder: Responder, tmp_path: Path) -> None:
    for numbers in ({"top": 0}, {"top": 6, "k": 5}):
        with pytest.raises(SearchError, match="top must be"):
            responder.suggest(["hello"], **numbers)
    with pytest.raises(SearchError, match="as \\[text\\]"):
        responder.add("hello")
    with pytest.raises(SearchError, match="answer 1 is not valid: the text is empty"):
        responder.add(["fine", " "])
    with pytest.raises(SearchError, match="speakers must be"):
        responder.index(DIALOGUES, speakers=[])
    with pytest.raises(SearchError, match="turns must be at least 1"):
        Responder.open(tmp_path / "other", BagOfWords(), turns=0)
    with pytest.raises(EncoderMismatchError, match="another encoder"):
        Responder.open(tmp_path / "responses", BagOfWords("other"))
    with pytest.raises(SearchError, match="turns"):
        Responder.open(tmp_path / "responses", BagOfWords(), turns=9)
    assert len(responder) == 18


# ---- ranking


def candidate(number: int, similarity: float, vector: Sequence[float]) -> SearchHit:
    values = {"text": f"text {number}", "same": number, "answer": np.asarray(vector, np.float16), "turn": number}
    values |= {"dialogue": f"d{number}", "speaker": "system", "source": None, "split": None}
    return SearchHit(f"key {number}", similarity, values)


scores = st.floats(-1, 1, width=32)
candidates_strategy = st.lists(st.tuples(scores, st.integers(1, 100_000), st.integers(0, 3)), min_size=1, max_size=12)


@given(candidates_strategy, st.integers(1, 12))
def test_ranking_and_folding_match_a_restatement(rows: list[tuple[float, int, int]], top: int) -> None:
    """Restatement: sort by the damped score, then assign each text to the first better one in the same direction."""
    directions = np.eye(4)
    candidates = [candidate(number, score, directions[way]) for number, (score, _, way) in enumerate(rows)]
    counts = {number: count for number, (_, count, _) in enumerate(rows)}
    worth = [max(score, 0.0) / (1 + np.log(count)) ** DAMPING for score, count, _ in rows]
    order = sorted(range(len(rows)), key=lambda number: -worth[number])
    groups: dict[int, list[int]] = {}
    for number in order:
        groups.setdefault(rows[number][2], []).append(number)
    expected = list(groups.values())[:top]
    suggestions = rank_answers(candidates, counts, None, top)
    assert [each.text for each in suggestions] == [f"text {group[0]}" for group in expected]
    assert [each.folded for each in suggestions] == [
        tuple(f"text {number}" for number in group[1:]) for group in expected
    ]
    assert [each.count for each in suggestions] == [counts[group[0]] for group in expected]
    np.testing.assert_allclose([each.score for each in suggestions], [worth[group[0]] for group in expected])


def test_folding_threshold() -> None:
    def at(cosine: float) -> list[float]:
        return [cosine, np.sqrt(1 - cosine**2)]

    near, far = at(FOLDING_SIMILARITY + 0.01), at(FOLDING_SIMILARITY - 0.01)
    assert len(rank_answers([candidate(0, 0.9, [1, 0]), candidate(1, 0.8, near)], {}, None, 5)) == 1
    assert len(rank_answers([candidate(0, 0.9, [1, 0]), candidate(1, 0.8, far)], {}, None, 5)) == 2


# ---- answer files


def test_read_answers(tmp_path: Path) -> None:
    plain = tmp_path / "a.txt"
    plain.write_text("one\n\n  two \n", encoding="utf-8")
    assert [answer.text for answer in read_answers(plain)] == ["one", "two"]
    table = tmp_path / "a.csv"
    table.write_text('\ufefftext,after,source\n"one, or\ntwo",why?,\nthree,,desk\n', encoding="utf-8")
    assert read_answers(table) == [Answer("one, or\ntwo", ("why?",)), Answer("three", source="desk")]
    lines = tmp_path / "a.jsonl"
    lines.write_text('{"text": "one", "after": ["a", "b"], "intent": "x"}\n\n{"text": "two"}\n', encoding="utf-8")
    assert read_answers(lines) == [Answer("one", ("a", "b"), intent="x"), Answer("two")]
    parquet = tmp_path / "a.parquet"
    pq.write_table(pa.table({"text": ["one", "two"], "after": [["a", "b"], None], "intent": ["x", None]}), parquet)
    assert read_answers(parquet) == read_answers(lines)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", b"answer\nhello\n", "no column 'text'; it has 'answer'"),
        ("a.csv", b"text\n' '\n \n", "line 3: the text is empty"),
        ("a.jsonl", b'{"text": "x", "after": 3}\n', "'after' must be a text or a list"),
        ("a.jsonl", b'{"text": "x", "after": [3]}\n', "not a string"),
        ("a.jsonl", b'{"text": "x", "source": ["s"]}\n', "the source is a list"),
        ("a.jsonl", b'{"text": "x", "after": "\\ud800"}\n', "lone surrogate"),
    ],
)
def test_invalid_answer_files(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises((SearchError, CorpusError), match=message):
        read_answers(tmp_path / name)


# ---- killed while indexing

INGEST = """
import sys
from tests.helpers.bag_of_words import BagOfWords
from turnwise import Dialogue, Responder, Turn
import turnwise.assist.responses.responder as module
import turnwise.assist.search.table as table
module._BATCH, table._COMMITS = 7, 4

class LoggingResponder(Responder):
    def _add(self, rows):
        added = super()._add(rows)
        if added:
            print(*(row.key for row in rows), flush=True)
        return added

def dialogues():
    for number in range(int(sys.argv[2])):
        yield Dialogue(f"d{number}", (Turn("user", f"question {number}"), Turn("system", f"answer {number}")), "logs")

responder = LoggingResponder.open(sys.argv[1], BagOfWords())
responder.index(dialogues())
print("ended", flush=True)
"""


@pytest.mark.full
def test_sigkill_loses_and_duplicates_nothing(tmp_path: Path) -> None:
    place, kills = tmp_path / "responses", 3
    chance, dialogues = random.Random(4), 100 * (kills + 1)  # more than are done before the last kill
    command = [sys.executable, "-c", INGEST, str(place), str(dialogues)]
    acknowledged: set[str] = set()
    for attempt in range(kills + 1):
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        output = ""
        if attempt < kills:  # at any moment after the first output
            output = "".join(process.stdout.readline() for _ in range(chance.randint(1, 2)))
            time.sleep(chance.uniform(0.0, 0.05))
            process.send_signal(signal.SIGKILL)
        output += process.stdout.read()
        process.wait()
        # an incomplete last line does not count
        acknowledged.update(key for line in output.split("\n")[:-1] for key in line.split())
        keys = Counter(Responder.open(place, BagOfWords()).table.read(["key"])["key"].to_pylist())
        assert acknowledged - {"ended"} <= set(keys)
        assert set(keys.values()) == {1}
        assert ("ended" in acknowledged) is (attempt == kills)
    texts = Counter(Responder.open(place, BagOfWords()).table.read(["text"])["text"].to_pylist())
    assert texts == Counter(f"answer {number}" for number in range(dialogues))


# ---- the commands


def run(*arguments: object) -> Any:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def small_model(tiny_folder: Any) -> str:
    return str(tiny_folder("bert"))


def test_commands(sample_world: Any, small_model: str, tmp_path: Path) -> None:
    store, place, answers = sample_world(40), tmp_path / "responses", tmp_path / "answers.txt"
    answers.write_text("We are open on Sundays.\n", encoding="utf-8")
    first = run("responses", "index", store, answers, "--out", place, "--model", small_model, "--json")
    assert first.exit_code == 0, first.output
    done = json.loads(first.stdout)
    assert done["dialogues"] == 40
    assert done["added"] == done["given"] == done["rows"] > 40
    assert done["index"] is None
    again = run("responses", "index", store, answers, "--out", place, "--model", small_model)
    assert again.exit_code == 0
    assert f"0 answers; {done['rows']} were already there" in again.output
    command = ("responses", "suggest", place, "hello", "hello", "my order is late", "--model", small_model)
    suggestions = json.loads(run(*command, "--json", "--top", 3).stdout)["suggestions"]
    from turnwise import Encoder

    expected = Responder.open(place, Encoder.load(small_model)).suggest(["hello", "hello", "my order is late"], top=3)
    assert suggestions == [asdict(each) | {"folded": list(each.folded)} for each in expected]
    assert len(suggestions) == 3
    shown = run(*command, "--top", 1)
    assert shown.exit_code == 0
    assert suggestions[0]["text"][:20] in shown.output
    assert "no answer matches the filter" in run(*command, "--where", "source=nowhere").output


def test_table_of_another_encoder_is_refused_until_it_is_rebuilt(
    sample_world: Any, small_model: str, tmp_path: Path
) -> None:
    store, place = sample_world(40), tmp_path / "responses"
    assert run("responses", "index", store, "--out", place, "--model", small_model).exit_code == 0
    nudged(small_model).save(tmp_path / "tuned")
    suggest = ("responses", "suggest", place, "hello", "--model", tmp_path / "tuned")
    refused = run(*suggest)
    assert isinstance(refused.exception, EncoderMismatchError)
    for part in (f"another encoder: {small_model}", f"not {tmp_path / 'tuned'}", f"--out {place} --rebuild --model"):
        assert part in str(refused.exception)
    index = ("responses", "index", store, "--out", place, "--model", tmp_path / "tuned", "--json")
    assert isinstance(run(*index).exception, EncoderMismatchError)
    rebuilt = json.loads(run(*index, "--rebuild").stdout)
    assert rebuilt["added"] == rebuilt["rows"] > 40
    assert run(*suggest).exit_code == 0


def test_command_errors(sample_world: Any, small_model: str, tmp_path: Path) -> None:
    def error_of(*arguments: object) -> str:
        result = run("responses", *arguments)
        assert result.exit_code != 0
        return f"{result.output} {result.exception}"

    assert "neither a store nor a file" in error_of("index", tmp_path / "nothing", "--out", tmp_path / "out")
    typo = error_of("index", sample_world(40), "--speaker", "sistem", "--out", tmp_path / "out")
    assert "choose from system, user. Did you mean system?" in typo
    assert "holds no responses" in error_of("suggest", tmp_path / "nothing", "hello")
    assert "expected key=value" in error_of("suggest", tmp_path, "hello", "--where", "source")
    assert "more than the 2" in error_of("suggest", tmp_path, "hello", "--k", 2)
    assert not (tmp_path / "out").exists()
    assert "Missing argument" in error_of("suggest", tmp_path)


def test_relative_path_after_change_of_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    responder = Responder.open("relative", BagOfWords())
    (tmp_path / "elsewhere").mkdir()
    os.chdir(tmp_path / "elsewhere")
    assert responder.add(["hello"]).added == 1
    assert len(Responder.open(tmp_path / "relative", BagOfWords())) == 1
