"""Intent data sets: published sizes and digests, templates against the texts they come from, malformed files."""

import itertools
import json
import os
import re
from collections import Counter
from functools import cache
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.helpers.bag_of_words import BagOfWords
from tests.helpers.stores import write_store
from turnwise.core.dialogue import SYSTEM, USER, Dialogue, Slot, Turn
from turnwise.core.errors import DatasetError
from turnwise.corpus.slots.templates import Template
from turnwise.evaluation.datasets.intents import (
    OUT_OF_SCOPE,
    IntentData,
    IntentUtterance,
    OutOfScopeTexts,
    intent_datasets,
    load_intents,
    parse_slots,
    template_pieces,
)
from turnwise.evaluation.probe import make_probe

DATA = os.environ.get("TURNWISE_DATA")
HERE = Path(__file__).parent
real = pytest.mark.skipif(DATA is None, reason="TURNWISE_DATA is not set: real data needed")

KNOWN = [
    *("clinc150", "clinc150_small", "clinc150_imbalanced", "clinc150_oos_plus", "banking77", "hwu64", "hwu64_kfold"),
    *("snips", "snips_original", "atis", "massive", "sample"),
]
SNIPS = (
    *("AddToPlaylist", "BookRestaurant", "GetWeather", "PlayMusic", "RateBook", "SearchCreativeWork"),
    "SearchScreeningEvent",
)
ENGINES = "snips_original/2017-06-custom-intent-engines"
NUMBERS = itertools.count()


def lines(*records: object) -> str:
    return "".join(json.dumps(record) + "\n" for record in records)


def massive(partition: str, text: str, annotation: str, locale: str = "en-US", **changes: object) -> dict[str, object]:
    record: dict[str, object] = {
        "id": str(next(NUMBERS)),
        "locale": locale,
        "partition": partition,
        "intent": "lamp_on",
    }
    return record | {"utt": text, "annot_utt": annotation} | changes


@cache
def layouts() -> dict[str, dict[str, str]]:
    """Return small data sets of made-up texts, each as its authors lay theirs out: contents by path."""
    found: dict[str, dict[str, str]] = yaml.safe_load((HERE / "intent_layouts.yaml").read_text("utf-8"))
    return found


def lay(data: Path, files: dict[str, str]) -> None:
    for path, content in files.items():
        (data / path).parent.mkdir(parents=True, exist_ok=True)
        (data / path).write_bytes(content.encode("utf-8", "surrogatepass"))


def slots(data: IntentData) -> Counter[str]:
    utterances = (*data.train, *data.valid, *data.test)
    return Counter(slot.name for each in utterances for slot in each.slots or ())


def marked(utterance: IntentUtterance) -> str | None:
    return None if utterance.template is None else utterance.template.text(names=True)


def utterance(text: str, intent: str, *values: tuple[str, str]) -> IntentUtterance:
    """With slots (name, value), whose values the text holds once each."""
    return IntentUtterance(
        text,
        intent,
        tuple(Slot(name, value, text.index(value), text.index(value) + len(value)) for name, value in values),
    )


EXPECTED = {
    **{name: [IntentUtterance("fly me away", "fly")] for name in KNOWN if name.startswith("clinc150")},
    **{
        name: [IntentUtterance("lost, my card", "card"), IntentUtterance("new pin", "pin")]
        for name in ("banking77", "hwu64")
    },
    "hwu64_kfold": [utterance("light in the red  room now", "lamp_on", ("place", "red  room"), ("date", "now"))],
    **{
        name: [
            utterance("fly to new york  today", "fly", ("city", "new york"), ("date", "today")),
            utterance("hello", "fly#greet"),
        ]
        for name in ("snips", "atis")
    },
    "snips_original": [utterance("Put a lamp there.", intent, ("thing", "a lamp")) for intent in SNIPS],
    "massive": [utterance("light the hall", "lamp_on", ("place", "hall"))],
    "sample": [utterance("a lamp please", "order", ("thing", "lamp"))],
}


@pytest.mark.parametrize("name", KNOWN)
def test_each_layout_is_read(tmp_path: Path, name: str) -> None:
    lay(tmp_path, layouts()[name])
    data = load_intents(name, tmp_path)
    assert data.name == name
    assert list(data.train) == EXPECTED[name]
    assert data.intents == sorted({utterance.intent for utterance in EXPECTED[name]})
    assert len(data.test) == len(EXPECTED[name])
    assert len(data.valid) == (0 if name in ("banking77", "hwu64_kfold", "snips_original") else len(EXPECTED[name]))


def test_out_of_scope_is_separate_until_requested(tmp_path: Path) -> None:
    lay(tmp_path, layouts()["clinc150"] | layouts()["sample"] | layouts()["banking77"])
    data = load_intents("clinc150", tmp_path)
    assert data.out_of_scope == OutOfScopeTexts(("green is red",), (), ("why so", "eh"))
    assert data.intents == ["fly"]
    joined = data.with_out_of_scope()
    assert joined.intents == ["fly", OUT_OF_SCOPE]
    assert joined.out_of_scope == OutOfScopeTexts()
    assert joined.train == (*data.train, IntentUtterance("green is red", OUT_OF_SCOPE))
    assert joined.valid == data.valid
    assert [utterance.intent for utterance in joined.test] == ["fly", OUT_OF_SCOPE, OUT_OF_SCOPE]
    assert load_intents("sample", tmp_path).out_of_scope == OutOfScopeTexts(*[("what is love",)] * 3)
    banking = load_intents("banking77", tmp_path)
    assert banking.with_out_of_scope() == banking


names = st.sampled_from(["date", "time", "fromloc.city_name"])


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that each example writes its files to anew."""
    return tmp_path_factory.mktemp("layouts")


@given(st.lists(st.tuples(st.text(" ab.🍕", max_size=4), st.just("") | names), min_size=1, max_size=5))
def test_spans(folders: Path, pieces: list[tuple[str, str]]) -> None:
    """White space at a value's edges stays, and so does everything that no slot covers."""
    pieces = [(piece if not slot or piece.strip() else f"{piece}c", slot) for piece, slot in [*pieces, ("d", "")]]
    parts = [{"text": piece} | ({"entity": slot} if slot else {}) for piece, slot in pieces]
    if not (folders / ENGINES).is_dir():
        lay(folders, layouts()["snips_original"])
    content = json.dumps({"PlayMusic": [{"data": parts}]}, ensure_ascii=False)
    lay(folders, {f"{ENGINES}/PlayMusic/validate_PlayMusic.json": content})
    (utterance,) = [each for each in load_intents("snips_original", folders).test if each.intent == "PlayMusic"]
    assert utterance.text == "".join(piece for piece, _ in pieces).strip()
    assert (
        marked(utterance)
        == "".join(piece.replace(piece.strip(), f"{{{slot}}}") if slot else piece for piece, slot in pieces).strip()
    )


def test_an_emoji_in_two_surrogates_is_put_together(tmp_path: Path) -> None:
    files = layouts()["snips_original"]
    path = f"{ENGINES}/PlayMusic/train_PlayMusic_full.json"
    lay(tmp_path, files | {path: '{"PlayMusic": [{"data": [{"text": "caf\u00e9 \ud83c\udf55"}]}]}'})
    assert "caf\u00e9 \N{SLICE OF PIZZA}" in [
        utterance.text for utterance in load_intents("snips_original", tmp_path).train
    ]
    lay(tmp_path, {path: '{"PlayMusic": [{"data": [{"text": "half \ud83c"}]}]}'})
    with pytest.raises(DatasetError, match=r"train_PlayMusic_full\.json, the whole file: "):
        load_intents("snips_original", tmp_path)


PATTERNS = st.lists(st.text("ab \n", max_size=3), min_size=1, max_size=4)


@settings(max_examples=300)
@given(st.data(), PATTERNS)
def test_slots_are_found_by_a_template(data: st.DataObject, words: list[str]) -> None:
    """As a regular expression finds them that takes the shortest values; what it does not match is refused."""
    values = data.draw(st.lists(st.text("abc ", max_size=3), min_size=len(words) - 1, max_size=len(words) - 1))
    piece = words[0] + "".join(value + word for value, word in zip(values, words[1:], strict=True))
    text = data.draw(st.sampled_from([piece, f" {piece}\n", piece + "a", f"b{piece}"]))
    template = "".join(f"{word}{{{number}}}" for number, word in enumerate(words[:-1])) + words[-1]
    edges = [words[0].lstrip(), *words[1:]] if len(words) > 1 else [words[0].strip()]
    edges[-1] = edges[-1].rstrip()
    actual = re.fullmatch(r"(\s*\S.*?)".join(map(re.escape, edges)), text.strip(), re.DOTALL)
    if actual is None:
        with pytest.raises(ValueError, match="the template"):
            template_pieces(template, text)
        return
    slots = parse_slots(template_pieces(template, text), text)
    assert [(slot.name, slot.value) for slot in slots] == [
        (str(n), value.strip()) for n, value in enumerate(actual.groups())
    ]
    assert all(text[slot.start : slot.end] == slot.value for slot in slots)


@pytest.mark.parametrize(
    ("template", "text", "values"),
    [
        ("go to {city} to {aim}", "go to toronto to eat", ["toronto", "eat"]),
        ("{aim} or {aim}", "a or b or c", ["a", "b or c"]),
        ("write {x} here", "write {x} here", []),
        ("{x}", "{x} and {y}", ["{x} and {y}"]),
        ("as it is", " as it is", []),
    ],
)
def test_where_a_template_leaves_a_choice(template: str, text: str, values: list[str]) -> None:
    assert [slot.value for slot in parse_slots(template_pieces(template, text), text)] == values


@pytest.mark.parametrize(
    ("template", "text", "message"),
    [
        ("go to {city}", "fly to york", "has other words than the text 'fly to york'"),
        ("go", "went", "has other words"),
        ("go to {city}", "go to ", "has no value|other words"),
        ("to {city} now", "to york then", "no value for {city}, followed by ' now', of the template 'to {city} now'"),
        ("{a} and {b}", "one or two and", "no value for {a}"),
    ],
)
def test_a_template_that_does_not_fit_is_named_by_file_and_line(
    tmp_path: Path, template: str, text: str, message: str
) -> None:
    table = f"text,intent,template\nhi,greet,hi\n{text},go,{template}\n"
    lay(tmp_path, {f"intents_csv/mine/{split}.csv": table for split in ("train", "test")})
    with pytest.raises(DatasetError, match=rf"train\.csv, line 3: .*({message})"):
        load_intents("mine", tmp_path)


def test_what_an_utterance_gives() -> None:
    """Slots, even if there are none of them in it, make it a turn; what is not marked stays a text."""
    plain, bare, slotted = (
        IntentUtterance("to york", "go"),
        utterance("to york", "go"),
        utterance("to york", "go", ("city", "york")),
    )
    assert (plain.template, plain.input) == (None, "to york")
    assert (bare.template, bare.input) == (Template(("to york",), ()), (Turn(USER, "to york"),))
    assert slotted.template == Template(("to ", ""), ("city",))
    assert slotted.input == (Turn(USER, "to york", slots=(Slot("city", "york", 3, 7),)),)
    assert len({hash(each.input) for each in (plain, bare, slotted)}) == 3
    with pytest.raises(ValueError, match="offsets 3:7 enclose 'rome'"):
        IntentUtterance("to rome", "go", (Slot("city", "york", 3, 7),))


def test_the_known_ones_come_in_a_stable_order(tmp_path: Path) -> None:
    assert list(intent_datasets()) == KNOWN
    assert list(intent_datasets(tmp_path)) == KNOWN
    for dataset in intent_datasets().values():
        assert dataset.licence
        assert dataset.home.startswith("https://") or dataset.name == "sample"
        assert bool(dataset.digest) == (dataset.name != "sample")
        assert not dataset.differs


def test_locales_are_found_by_their_files(tmp_path: Path) -> None:
    lay(tmp_path, layouts()["massive"] | {"massive_1.1/other/NOTES.jsonl": "", "massive_1.1/other/xy-ZW.jsonl": ""})
    assert list(intent_datasets(tmp_path)) == [*KNOWN, "massive_xy-ZW"]
    rows = [massive(partition, "ola", "[greeting : ola]", "xy-ZW") for partition in ("train", "test")]
    lay(tmp_path, {"massive_1.1/other/xy-ZW.jsonl": lines(*rows)})
    assert load_intents("massive_xy-ZW", tmp_path).train == (utterance("ola", "lamp_on", ("greeting", "ola")),)
    lay(tmp_path, {"massive_1.1/again/xy-ZW.jsonl": lines(*rows)})
    with pytest.raises(DatasetError, match=r"other/xy-ZW\.jsonl, line 1: the id .* was there before"):
        load_intents("massive_xy-ZW", tmp_path)


def test_private_sets(tmp_path: Path) -> None:
    table = f"id,text,intent\n1,my card is lost,card\n2,what is love,{OUT_OF_SCOPE}\n"
    templates = '\ufefftext,intent,template\n"to york, now",go,"to {city}, now"\nhi,greet,hi\n'
    lay(tmp_path, {f"intents_csv/mine/{split}.csv": table for split in ("train", "valid", "test")})
    lay(tmp_path, {f"intents_csv/ours/{split}.csv": templates for split in ("train", "test")})
    actual = intent_datasets(tmp_path)
    assert list(actual) == [*KNOWN, "mine", "ours"]
    assert actual["mine"].is_present(tmp_path)
    mine, ours = load_intents("mine", tmp_path), load_intents("ours", tmp_path)
    assert mine.train == mine.valid == mine.test == (IntentUtterance("my card is lost", "card"),)
    assert mine.out_of_scope == OutOfScopeTexts(*[("what is love",)] * 3)
    assert ours.train == (utterance("to york, now", "go", ("city", "york")), utterance("hi", "greet"))
    assert ours.valid == ()
    before = actual["mine"].hash_files(tmp_path)
    lay(tmp_path, {"intents_csv/mine/valid.csv": table + "3,new pin,pin\n"})
    assert actual["mine"].hash_files(tmp_path) != before


def test_a_private_set_may_not_take_a_public_name(tmp_path: Path) -> None:
    lay(tmp_path, {"intents_csv/snips/train.csv": "text,intent\na,b\n"})
    with pytest.raises(DatasetError, match=r"intents_csv/snips has the name of a public data set"):
        intent_datasets(tmp_path)


def test_what_is_missing_is_named_with_its_home(tmp_path: Path) -> None:
    with pytest.raises(
        DatasetError, match=r"there is no intent data set 'nonsense' in .*: choose from clinc150, clinc150_small, "
    ):
        load_intents("nonsense", tmp_path)
    for name, dataset in intent_datasets().items():
        with pytest.raises(
            DatasetError, match=rf"does not exist: {name} must have .* get it from {re.escape(dataset.home)}"
        ):
            load_intents(name, tmp_path)
    lay(tmp_path, {"intents_csv/mine/train.csv": "text,intent\na,b\n"})
    with pytest.raises(DatasetError, match=r"intents_csv/mine/test\.csv does not exist"):
        load_intents("mine", tmp_path)


def test_the_probe_leaves_other_public_sets_alone(tmp_path: Path) -> None:
    files = {
        path: content for name in ("atis", "massive", "snips_original") for path, content in layouts()[name].items()
    }
    lay(tmp_path, files)
    with pytest.raises(DatasetError, match="holds no data for a probe"):
        make_probe(tmp_path)


def test_the_probe_measures_private_sets(tmp_path: Path) -> None:
    train = "".join(f"my {word} is lost,{word}\n" for word in ("card", "key") for _ in range(3))
    lay(tmp_path, {f"intents_csv/mine/{split}.csv": f"text,intent\n{train}" for split in ("train", "valid", "test")})
    values = make_probe(tmp_path)(BagOfWords())
    assert values and all(name.startswith("mine ") and value == 100 for name, value in values.items())


def labelled_dialogue(number: int, split: str | None, intent: str, text: str) -> Dialogue:
    turns = (Turn(USER, text, intent), Turn(SYSTEM, f"this is answer number {number}", "reply"), Turn(USER, "thanks"))
    return Dialogue(f"{split} {number}", turns, split=split)


def labelled_store(folder: Path, *splits: str | None) -> Path:
    """Write a store of twelve dialogues per split, about cards and keys and something out of scope."""
    topics = ("card", "key", OUT_OF_SCOPE)
    return write_store(
        folder,
        [
            labelled_dialogue(number, split, topics[number % 3], f"my {topics[number % 3]} is {split} {number // 6}")
            for split in splits
            for number in range(12)
        ],
    )


def test_a_store_is_an_intent_data_set(tmp_path: Path) -> None:
    store = labelled_store(tmp_path / "our-logs", "train", "valid", "test")
    assert list(intent_datasets(store)) == [*KNOWN, "our-logs"]
    data = load_intents("our-logs", store)
    assert data.name == "our-logs"
    for split in ("train", "valid", "test"):
        # user turns only, each once
        assert getattr(data, split) == tuple(
            IntentUtterance(f"my {topic} is {split} {half}", topic) for half in (0, 1) for topic in ("card", "key")
        )
        assert getattr(data.out_of_scope, split) == tuple(f"my {OUT_OF_SCOPE} is {split} {half}" for half in (0, 1))


def test_a_store_without_intents_or_splits_is_none(tmp_path: Path) -> None:
    plain = write_store(tmp_path / "plain", [Dialogue("a", (Turn(SYSTEM, "hello", "greet"), Turn(USER, "hi")))])
    assert list(intent_datasets(plain)) == KNOWN
    with pytest.raises(DatasetError, match="holds no data for a probe"):
        make_probe(plain)
    unsplit = labelled_store(tmp_path / "unsplit", None)
    with pytest.raises(DatasetError, match=r"unsplit has no user turn with an intent in split 'train'"):
        load_intents("unsplit", unsplit)
    untested = labelled_store(tmp_path / "untested", "train", "valid")
    with pytest.raises(DatasetError, match=r"untested has no user turn with an intent in split 'test'"):
        load_intents("untested", untested)
    assert make_probe(untested)(BagOfWords())  # a probe reads no test data


def test_the_probe_measures_a_store(tmp_path: Path) -> None:
    values = make_probe(labelled_store(tmp_path / "our-logs", "train", "valid", "test"))(BagOfWords())
    accuracies = [value for name, value in values.items() if name.startswith("our-logs ")]
    assert len(accuracies) == 2 and min(accuracies) > 75  # of two intents
    assert {"responses R10@1", "responses MRR"} <= set(values)


@pytest.mark.parametrize(
    ("name", "path", "content", "message"),
    [
        ("banking77", "banking77/banking_data/test.csv", "text,category\n\ud83c,b\n", "line 2: byte 0xed is not utf-8"),
        *(
            (name, *broken.values())
            for name, files in yaml.safe_load((HERE / "broken_files.yaml").read_text("utf-8"))["intents"].items()
            for broken in files
        ),
    ],
)
def test_what_does_not_fit_is_named_by_file_and_place(
    tmp_path: Path, name: str, path: str, content: str, message: str
) -> None:
    lay(tmp_path, layouts()[name] | {path: content})
    with pytest.raises(DatasetError, match=message) as raised:
        load_intents(name, tmp_path)
    named = path if message.startswith(("line", "entry", "the whole")) else path.split("/")[0]
    assert re.sub("seq.out|label", "seq.in", named) in str(raised.value)


@cache
def loaded(name: str) -> IntentData:
    return load_intents(name, Path(str(DATA)))


@real
@pytest.mark.parametrize(
    ("name", "sizes", "outside", "intents", "slot_types"),
    [
        ("clinc150", (15000, 3000, 4500), (100, 100, 1000), 150, 0),
        ("clinc150_small", (7500, 3000, 4500), (100, 100, 1000), 150, 0),
        ("clinc150_imbalanced", (10525, 3000, 4500), (100, 100, 1000), 150, 0),
        ("clinc150_oos_plus", (15000, 3000, 4500), (250, 100, 1000), 150, 0),
        ("banking77", (10003, 0, 3080), (0, 0, 0), 77, 0),
        ("hwu64", (8954, 1076, 1076), (0, 0, 0), 64, 0),
        ("hwu64_kfold", (9960, 0, 1076), (0, 0, 0), 64, 54),
        ("snips", (13084, 700, 700), (0, 0, 0), 7, 39),
        ("snips_original", (13784, 0, 700), (0, 0, 0), 7, 39),
        ("atis", (4478, 500, 893), (0, 0, 0), 26, 83),
        ("massive", (11514, 2033, 2974), (0, 0, 0), 60, 55),
    ],
)
def test_real_sizes(
    name: str, sizes: tuple[int, int, int], outside: tuple[int, int, int], intents: int, slot_types: int
) -> None:
    data = loaded(name)
    assert (len(data.train), len(data.valid), len(data.test)) == sizes
    apart = data.out_of_scope
    assert (len(apart.train), len(apart.valid), len(apart.test)) == outside
    assert len(data.intents) == intents
    assert len(slots(data)) == slot_types
    assert {utterance.slots is not None for utterance in (*data.train, *data.valid, *data.test)} == {slot_types > 0}


@real
def test_real_digests() -> None:
    folder = Path(str(DATA))
    there = {
        name: dataset
        for name, dataset in intent_datasets(folder).items()
        if dataset.is_present(folder) and dataset.digest
    }
    assert {*KNOWN} - {"sample"} <= {*there}
    assert {name: dataset.hash_files(folder) for name, dataset in there.items()} == {
        name: dataset.digest for name, dataset in there.items()
    }
