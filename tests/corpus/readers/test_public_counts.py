"""Tests the readers on the real corpora: counts equal those of the published files, and labels are read.

The data are other people's and not part of the project: point TURNWISE_DATA at a folder that has one folder a corpus.
"""

import csv
import io
import json
import os
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest

from turnwise.core.dialogue import SYSTEM, USER, Dialogue
from turnwise.corpus.importing.pipeline import import_corpus
from turnwise.corpus.registry import READERS
from turnwise.corpus.storage.store import Store


@dataclass
class Summary:
    """Counts of a corpus' dialogues for the tests below, collected in one pass over millions of turns."""

    splits: Counter = field(default_factory=Counter)
    speakers: Counter = field(default_factory=Counter)
    intents: Counter = field(default_factory=Counter)
    acts: Counter = field(default_factory=Counter)
    slots: Counter = field(default_factory=Counter)
    #: Turns that have any, by speaker; with an intent also by split.
    with_intent: Counter = field(default_factory=Counter)
    with_acts: Counter = field(default_factory=Counter)
    user_turns: Counter = field(default_factory=Counter)
    #: Slots whose value is not what the text holds there.
    misplaced: int = 0

    @classmethod
    def of(cls, dialogues: Iterable[Dialogue]) -> "Summary":
        summary = cls()
        for dialogue in dialogues:
            summary.splits[dialogue.split] += 1
            for turn in dialogue.turns:
                summary.speakers[turn.speaker] += 1
                summary.acts.update(turn.acts)
                summary.with_acts[turn.speaker] += bool(turn.acts)
                summary.with_intent[turn.speaker, dialogue.split] += turn.intent is not None
                summary.user_turns[dialogue.split] += turn.speaker == USER
                if turn.intent is not None:
                    summary.intents[turn.intent] += 1
                for slot in turn.slots:
                    summary.slots[slot.name] += 1
                    summary.misplaced += turn.text[slot.start : slot.end] != slot.value
        return summary

    @property
    def act_names(self) -> set[str]:
        return {act.partition("(")[0] for act in self.acts}

    @property
    def intent_count(self) -> int:
        return self.intents.total()

    @property
    def act_count(self) -> int:
        return self.acts.total()

    @property
    def slot_count(self) -> int:
        return self.slots.total()


class Imported:
    """An import of a real corpus."""

    def __init__(self, store: Store):
        self.store = store
        self.manifest = store.manifest
        lines = (store.folder / "rejected.jsonl").read_text(encoding="utf-8").splitlines()
        self.rejected = [json.loads(line) for line in lines]
        assert self.manifest["rejected"] == len(self.rejected)

    @cached_property
    def summary(self) -> Summary:
        return Summary.of(self.store)


Read = Callable[..., Imported]


@pytest.fixture(scope="module")
def read(tmp_path_factory: pytest.TempPathFactory) -> Read:
    """Imports `$TURNWISE_DATA/PLACE`, each only once; skips where the data are not there."""
    done: dict[str, Imported] = {}

    def run(reader: str, folder: str = "", **options: Any) -> Imported:
        root = os.environ.get("TURNWISE_DATA")
        if not root:
            pytest.skip("TURNWISE_DATA is not set: real data needed")
        path = Path(root) / (folder or reader)
        if not path.exists():
            pytest.skip(f"{path} is not there: real data needed")
        key = json.dumps([reader, folder, options])
        if key not in done:
            done[key] = Imported(import_corpus(reader, path, tmp_path_factory.mktemp("store"), **options))
        return done[key]

    return run


def quick(reader: str, folder: str = "", options: Any = (), **expected: Any) -> Any:
    return pytest.param(reader, folder, dict(options), expected)


def full(reader: str, folder: str = "", options: Any = (), **expected: Any) -> Any:
    return pytest.param(reader, folder, dict(options), expected, marks=pytest.mark.full)


#: reader, folder, dialogues and utterances read, dialogues and utterances accepted, things rejected.
COUNTS = [
    pytest.param("schema_guided_dialogue", "", (22_825, 463_284), (22_825, 463_282), 2, marks=pytest.mark.full),
    pytest.param("multiwoz", "", (10_437, 143_044), (10_437, 143_044), 0, marks=pytest.mark.full),
    ("kvret", "", (3_031, 15_928), (3_030, 15_918), 11),
    ("woz2", "", (1_200, 8_824), (1_200, 8_824), 0),
    ("camrest676", "", (676, 5_488), (676, 5_488), 0),
    pytest.param("star", "", (6_652, 108_137), (6_205, 108_137), 447, marks=pytest.mark.full),
    ("taskmaster3_partial", "", (1_462 + 3_667, 16_782 + 29_505), (5_129, 45_006), 320),
    ("taskmaster", "taskmaster4", (3_710, 13_915), (3_710, 13_915), 0),
    pytest.param("self_dialogue", "", (24_249, 375_384), (24_249, 375_384), 0, marks=pytest.mark.full),
    pytest.param("chitchat", "", (7_168, 258_145), (7_168, 258_112), 33, marks=pytest.mark.full),
    ("casino", "", (1_030, 14_297), (1_030, 14_297), 0),
    pytest.param("dailydialog", "", (13_118, 102_979), (13_118, 102_979), 0, marks=pytest.mark.full),
    ("topical_chat", "", (2_156, 46_903), (2_156, 46_903), 0),
    pytest.param("dstc2", "", (3_235, 47_767), (3_235, 47_767), 0, marks=pytest.mark.full),
    ("gsim_m2m", "", (3_008, 27_120), (3_008, 27_120), 0),
    ("question_answers", "amazonqa_appliances", (9_011, 18_022), (9_011, 18_022), 0),
    ("responses", "ubuntu_v1_slices", (1_060, 11_859), (1_060, 11_844), 15),
    ("responses", "douban", (200, 1_366), (200, 1_366), 0),
    ("responses", "ecommerce_ecd_sample", (254, 2_304), (254, 2_304), 0),
    ("responses", "ubuntu_v2_slices/DeepInEvil_UDC/data/test500.csv", (499, 2_558), (499, 2_558), 0),
    ("labelled_responses", "ubuntu_v1_slices", (2_600, 28_870), (2_600, 28_816), 54),
    ("labelled_responses", "douban", (2_000, 14_330), (2_000, 14_330), 0),
    pytest.param("irc_disentanglement", "", (3_872, 40_381), (3_872, 40_381), 0, marks=pytest.mark.full),
    ("massive", "massive_1.1", (16_521, 16_521), (16_521, 16_521), 0),
    ("hwu64_kfold", "hwu64", (11_036, 11_036), (11_036, 11_036), 0),
    ("snips", "snips_slotgated", (14_484, 14_484), (14_484, 14_484), 0),
    ("atis", "atis_slotgated", (5_871, 5_871), (5_871, 5_871), 0),
    ("clinc150", "clinc150_oos", (23_700, 23_700), (23_700, 23_700), 0),
]


@pytest.mark.parametrize(("reader", "folder", "in_files", "accepted", "rejected"), COUNTS)
def test_counts_equal_the_files(read: Read, reader: str, folder: str, in_files: tuple, accepted: tuple, rejected: int):
    outcome = read(reader, folder)
    manifest, left_out = outcome.manifest, outcome.manifest["left_out"]
    assert manifest["read"] == {"dialogues": in_files[0], "utterances": in_files[1]}
    assert (manifest["dialogues"], manifest["utterances"]) == accepted
    assert len(outcome.store) == accepted[0]
    assert len(outcome.rejected) == rejected
    assert all(rejection["file"] and rejection["reason"] for rejection in outcome.rejected)
    kinds = Counter(rejection["kind"] for rejection in outcome.rejected)
    by_design = ("API calls as targets", "turns of a shorter moment of the same conversation")
    assert in_files[1] == accepted[1] + kinds["turn"] + sum(left_out.get(name, 0) for name in by_design)
    assert in_files[0] == accepted[0] + kinds["dialogue"]


#: What each corpus contains: attributes of its summary, with the values expected.
CONTENTS = [
    full(
        "schema_guided_dialogue",
        splits={"train": 16_142, "valid": 2_482, "test": 4_201},
        speakers={USER: 231_642, SYSTEM: 231_640},
        intent_count=199_917,
        slot_count=328_829,
    ),
    full("multiwoz", splits={"train": 8_437, "valid": 1_000, "test": 1_000}, slots={"value": 25_732}),
    full(
        "multiwoz",
        options={"form": "json"},
        splits={"valid": 999, "test": 1_000},
        with_acts={USER: 13_551, SYSTEM: 14_579},
        slot_count=37_902,
    ),
    full("dstc2", splits={"train": 1_612, "valid": 506, "test": 1_117}, with_acts={USER: 0, SYSTEM: 22_203}),
    full(
        "dailydialog",
        splits={"train": 11_118, "valid": 1_000, "test": 1_000},
        act_names={"inform", "question", "directive", "commissive"},
        act_count=102_979,  # one per turn
    ),
    full("irc_disentanglement", splits={"train": 3_490, "valid": 143, "test": 239}),
    # 46,640 turns were picked from suggestions, and 49 typed ones are labelled too
    full("star", speakers={USER: 54_214, SYSTEM: 53_923}, with_acts={USER: 0, SYSTEM: 46_640 + 49}),
    quick(
        "woz2", splits={"train": 600, "valid": 200, "test": 400}, slots={"food": 1_306, "area": 842, "price range": 474}
    ),
    quick("camrest676", slots={"food": 738, "area": 480, "pricerange": 292}),
    quick("gsim_m2m", splits={"train": 384 + 1_116, "valid": 120 + 349, "test": 264 + 775}),
    quick("topical_chat", splits={"valid": 1_078, "test": 1_078}),
    quick("casino", splits={"train": 900, "valid": 30, "test": 100}),
    quick(
        "kvret",
        splits={"train": 2_424, "valid": 302, "test": 304},
        with_acts={USER: 5_577, SYSTEM: 0},
        act_names={"inform", "request"},
    ),
    quick("taskmaster3_partial", splits={"train": 1_462, None: 3_667}),
    quick("taskmaster", "taskmaster4", slots={"request": 82}, speakers={USER: 6_995, SYSTEM: 6_920}),
    quick("responses", "ubuntu_v1_slices", splits={"train": 1_000, "valid": 60}),
    quick("responses", "ecommerce_ecd_sample", splits={"test": 100, "train": 77, "valid": 77}),
    quick("labelled_responses", "douban", intents={"right response": 253, "wrong response": 2_000 - 253}),
    quick(
        "labelled_responses",
        "ubuntu_v1_slices",
        splits={"train": 2_000, "valid": 600},
        intents={"right response": 1_060, "wrong response": 1_000 + 60 * 9},
    ),
]


@pytest.mark.parametrize(("reader", "folder", "options", "expected"), CONTENTS)
def test_contents(read: Read, reader: str, folder: str, options: dict, expected: dict):
    summary = read(reader, folder, **options).summary
    assert {name: getattr(summary, name) for name in expected} == expected
    assert summary.misplaced == 0


@pytest.mark.parametrize(
    ("reader", "reasons"),
    [
        pytest.param("schema_guided_dialogue", {("turn", "the text is empty"): 2}, marks=pytest.mark.full),
        ("kvret", {("turn", "the text is empty"): 10, ("dialogue", "the dialogue has no turns"): 1}),
        pytest.param("star", {("dialogue", "the dialogue has no turns"): 447}, marks=pytest.mark.full),
        pytest.param("chitchat", {("turn", "the text is empty"): 33}, marks=pytest.mark.full),
        ("taskmaster3_partial", {("turn", "the text is empty"): 320}),
    ],
)
def test_rejections_have_file_line_and_reason(read: Read, reader: str, reasons: dict):
    outcome = read(reader)
    assert Counter((rejection["kind"], rejection["reason"]) for rejection in outcome.rejected) == reasons
    assert outcome.manifest["reasons"] == {f"{kind}: {reason}": count for (kind, reason), count in reasons.items()}
    assert all(rejection["dialogue"] for rejection in outcome.rejected)
    lines = {rejection["line"] for rejection in outcome.rejected}
    assert lines == {None} if reader == "star" else None not in lines  # a star file is one dialogue


def test_responses_leave_out_negatives_by_count(read: Read):
    """Douban's own figures: 253 human positives, 67 contexts without one."""
    douban = read("responses", "douban").manifest["left_out"]
    assert douban == {
        "negative responses": 2_000 - 253,
        "further right responses": 253 - (200 - 67),
        "contexts without a right response (their turns are kept)": 67,
    }
    assert read("responses", "ubuntu_v1_slices").manifest["left_out"] == {"negative responses": 1_000 + 60 * 9}


@pytest.mark.parametrize("name", ["test500", "valid500"])
def test_ubuntu_v2_has_a_right_response_for_every_context(read: Read, name: str):
    outcome = read("responses", f"ubuntu_v2_slices/DeepInEvil_UDC/data/{name}.csv")
    assert len(outcome.store) == 499
    assert outcome.manifest["left_out"] == {"negative responses": 499 * 9}
    assert not any("__eou__" in turn.text or "__eot__" in turn.text for it in outcome.store for turn in it.turns)


@pytest.mark.full
def test_schema_guided_has_intents_and_acts(read: Read):
    """Of the test split 17,434 user turns come from files without intents: the others have one but for greetings."""
    summary = read("schema_guided_dialogue").summary
    for split in ("train", "valid"):
        assert summary.with_intent[USER, split] / summary.user_turns[split] > 0.9
    assert not any(summary.with_intent[SYSTEM, split] for split in summary.splits)
    assert summary.with_acts[SYSTEM] == 231_640


@pytest.mark.full
def test_text_form_of_multiwoz_loses_its_brackets(read: Read):
    """All but a dozen that the source forgot to pair; users and systems alternate."""
    brackets = 0
    for dialogue in read("multiwoz").store:
        assert [turn.speaker for turn in dialogue.turns] == [(USER, SYSTEM)[n % 2] for n in range(len(dialogue.turns))]
        brackets += sum("[" in turn.text or "]" in turn.text for turn in dialogue.turns)
    assert brackets == 12


@pytest.mark.full
def test_json_form_of_multiwoz(read: Read):
    outcome = read("multiwoz", form="json")
    assert outcome.manifest["facts"] == {"form": "json"}
    assert outcome.manifest["read"] == {"dialogues": 1_999, "utterances": 29_474}
    assert Counter(rejection["kind"] for rejection in outcome.rejected) == {"slot": 4}
    assert all("lie outside the text" in rejection["reason"] for rejection in outcome.rejected)


def _words(dialogue: Dialogue) -> list[tuple[str, str]]:
    return [(turn.speaker, " ".join(turn.text.split())) for turn in dialogue.turns]


def test_two_forms_of_gsim_hold_the_same_texts(read: Read):
    """The original form has 1,117 of the 3,008 dialogues, with the users' intents."""
    unified = {(it.split, it.id): it for it in read("gsim_m2m").store}
    original = read("gsim_m2m", form="original")
    assert original.manifest["facts"] == {"form": "original"}
    assert len(original.store) == 384 + 120 + 264 + 349
    assert original.rejected == []
    for dialogue in original.store:
        assert _words(dialogue) == _words(unified[dialogue.split, dialogue.id.partition("/")[2]])
    assert sum(original.summary.intents.values()) == 1_117


def test_kvret_has_an_intent_per_dialogue(read: Read):
    outcome = read("kvret")
    assert all([turn.intent is not None for turn in it.turns].count(True) == 1 for it in outcome.store)
    assert set(outcome.summary.intents) == {"navigate", "schedule", "weather"}


@pytest.mark.parametrize("reader", [pytest.param("chitchat", marks=pytest.mark.full), "topical_chat", "casino"])
def test_speakers_without_roles_are_numbered_by_first_appearance(read: Read, reader: str):
    outcome = read(reader)
    lost = {rejection["dialogue"] for rejection in outcome.rejected}  # the first to appear may have no text
    for dialogue in (it for it in outcome.store if it.id not in lost):
        order = list(dict.fromkeys(turn.speaker for turn in dialogue.turns))
        assert order == [f"speaker_{number}" for number in range(1, len(order) + 1)]


#: reader, folder, options, splits, intents, slot names.
LABELLED = [
    ("massive", "massive_1.1", {}, {"train": 11_514, "valid": 2_033, "test": 2_974}, 60, 55),
    ("massive", "massive_1.1", {"locale": "de-DE"}, {"train": 11_514, "valid": 2_033, "test": 2_974}, 60, 55),
    ("massive", "massive_1.1", {"locale": "ko-KR"}, {"train": 11_514, "valid": 2_033, "test": 2_974}, 60, 55),
    ("massive", "massive_1.1", {"locale": "zh-CN"}, {"train": 11_514, "valid": 2_033, "test": 2_974}, 60, 55),
    ("hwu64_kfold", "hwu64", {}, {"train": 9_960, "test": 1_076}, 64, 54),
    ("snips", "snips_slotgated", {}, {"train": 13_084, "valid": 700, "test": 700}, 7, 39),
    ("atis", "atis_slotgated", {}, {"train": 4_478, "valid": 500, "test": 893}, 26, 83),
    ("clinc150", "clinc150_oos", {}, {"train": 15_100, "valid": 3_100, "test": 5_500}, 151, 0),
    ("clinc150", "clinc150_oos", {"form": "oos_plus"}, {"train": 15_250, "valid": 3_100, "test": 5_500}, 151, 0),
]


@pytest.mark.parametrize(("reader", "folder", "options", "splits", "intents", "slots"), LABELLED)
def test_labelled_utterance_is_a_turn_of_a_user_with_intent_slots_and_split(
    read: Read, reader: str, folder: str, options: dict, splits: dict, intents: int, slots: int
):
    outcome = read(reader, folder, **options)
    summary = outcome.summary
    assert outcome.rejected == []
    assert summary.splits == splits
    assert summary.speakers == {USER: sum(splits.values())} == {USER: sum(summary.intents.values())}
    assert len(summary.intents) == intents
    assert len(summary.slots) == slots
    assert summary.misplaced == 0
    assert all(len(dialogue.turns) == 1 for dialogue in outcome.store)


@pytest.mark.parametrize("reader", ["massive", "hwu64_kfold", "snips", "atis", "clinc150"])
def test_published_counts_of_the_registry(read: Read, reader: str):
    folder = next(folder for name, folder, *_ in LABELLED if name == reader)
    assert asdict(READERS[reader].published) == read(reader, folder).manifest["read"]


@pytest.mark.parametrize(("reader", "folder"), [("massive", "massive_1.1"), ("hwu64_kfold", "hwu64")])
def test_every_mark_of_an_annotation_is_a_slot(read: Read, reader: str, folder: str):
    """As many slots as there are opening brackets in the annotations."""
    summary = read(reader, folder).summary
    root = Path(os.environ["TURNWISE_DATA"]) / folder
    if reader == "massive":
        (path,) = root.glob("**/en-US.jsonl")
        annotations = [json.loads(line)["annot_utt"] for line in path.read_text(encoding="utf-8").splitlines()]
    else:
        files = [path.read_text(encoding="utf-8-sig") for path in root.glob("**/KFold_1/**/*.csv")]
        annotations = [
            row["answer_annotation"] for text in files for row in csv.DictReader(io.StringIO(text), delimiter=";")
        ]
    assert sum(summary.slots.values()) == "".join(annotations).count("[") > 5_000


def test_slots_of_snips_and_atis_have_the_words_that_are_tagged(read: Read):
    """Word by word, over all splits: each tagged word is in a slot of its name, and no other is."""
    for reader in ("snips", "atis"):
        folder = f"{reader}_slotgated"
        store = read(reader, folder).store
        tagged: Counter = Counter()
        for path in (Path(os.environ["TURNWISE_DATA"]) / folder).rglob("seq.out"):
            tagged.update(tag[2:] for tag in path.read_text(encoding="utf-8").split() if tag != "O")
        counts: Counter = Counter()
        for dialogue in store:
            for slot in dialogue.turns[0].slots:
                counts[slot.name] += len(slot.value.split())
        assert counts == tagged


def test_out_of_scope_utterances_of_clinc150_have_an_intent(read: Read):
    assert read("clinc150", "clinc150_oos").summary.intents["oos"] == 100 + 100 + 1_000


def test_taskmaster3_counts_what_it_skips(read: Read):
    assert read("taskmaster3_partial").manifest["left_out"] == {
        "generations of a model": 3_667,
        "API calls as targets": 549,
        "turns of a shorter moment of the same conversation": 412,
    }
