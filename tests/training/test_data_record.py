"""A trained model knows what it, its start and its teachers were trained on."""

import os
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path

import pytest

from tests.helpers.stores import write_store
from tests.helpers.tiny import backbone, recipe
from turnwise import Encoder, read_corpus, train
from turnwise.core.dialogue import SYSTEM, USER, Dialogue, Turn
from turnwise.corpus.training_data import TrainingData
from turnwise.evaluation.datasets.dataset import read_dialogues
from turnwise.training.recipe import Recipe

DATA = os.environ.get("TURNWISE_DATA")


def trained(settings: Recipe, store: Path, out: Path) -> TrainingData:
    data = train(settings, read_corpus(store), out).training_data
    assert data is not None
    return data


def dialogue(name: str, *texts: str, speakers: Iterable[str] = (USER, SYSTEM) * 9) -> Dialogue:
    turns = tuple(Turn(speaker, text) for speaker, text in zip(speakers, texts, strict=False))
    return Dialogue(name, turns)


def has_texts(data: TrainingData, *texts: str) -> list[bool]:
    found: list[bool] = data.find([(text,) for text in texts]).texts.tolist()
    return found


def tiny(*changes: str) -> Recipe:
    return recipe("dse", "steps=1", "batch_size=2", "objectives.dse.minimum_words=0", *changes)


def test_combined_turns_are_recorded_as_they_were_and_as_they_are(tmp_path: Path) -> None:
    store = write_store(
        tmp_path / "store",
        [
            dialogue("a", "good morning", "my parcel is lost", "i am sorry", speakers=(USER, USER, SYSTEM)),
            dialogue("b", "hello there", "how can i help"),
            dialogue("c", "too short", "once combined", speakers=(USER, USER)),
        ],
    )
    data = trained(tiny("combine_turns=true", "min_turns=2"), store, tmp_path / "run")
    texts = ("good morning my parcel is lost", "good morning", "My parcel is lost!", "hello there", "too short", "new")
    assert has_texts(data, *texts) == [True, True, True, True, False, False]
    pairs = (("good morning my parcel is lost", "i am sorry"), ("my parcel is lost", "i am sorry"))
    assert data.find(pairs).pairs[::2].all()


def test_a_teachers_training_data_belongs_to_the_model(tmp_path: Path) -> None:
    learnt = [dialogue("a", "the teacher knows this", "indeed it does"), dialogue("b", "and that", "of course")]
    taught = [dialogue("a", "the model reads this", "yes it does"), dialogue("b", "not that", "of course not")]
    stores = [write_store(tmp_path / name, each) for name, each in (("learnt", learnt), ("taught", taught))]
    trained(tiny(), stores[0], tmp_path / "teacher")
    anchor = ("objectives.anchor.weight=1", "objectives.anchor.batch_size=2")
    texts = ("the teacher knows this", "the model reads this", "new")
    data = trained(tiny(*anchor, f"objectives.anchor.teacher={tmp_path / 'teacher'}"), stores[1], tmp_path / "model")
    assert has_texts(data, *texts) == [True, True, False]
    saved = Encoder.load(tmp_path / "model", device="cpu").training_data
    assert saved is not None and has_texts(saved, *texts) == [True, True, False]
    data = trained(tiny(*anchor), stores[1], tmp_path / "start")
    assert len(data.stages) == 1 and data.statements == ()
    data = trained(tiny(*anchor, f"objectives.anchor.teacher={backbone()}"), stores[1], tmp_path / "other")
    assert data.statements == (f"nothing is known of the training data of the teacher {backbone()}",)


def test_only_labels_that_an_objective_reads_are_recorded(tmp_path: Path) -> None:
    texts = [f"{verb} my {thing}" for verb in ("cancel", "send") for thing in ("order", "parcel", "letter")]
    for name in ("mine", "theirs"):
        dialogues = [Dialogue(text, (Turn(USER, f"{name} {text}", intent=text.split()[0]),)) for text in texts]
        write_store(tmp_path / name, dialogues)
    (tmp_path / "labelled.yaml").write_text("objectives: {labelled: {utterances: 2, stores: [mine]}}\n")
    settings = recipe(str(tmp_path / "labelled.yaml"), "steps=1")
    data = train(settings, read_corpus(tmp_path / "mine", tmp_path / "theirs"), tmp_path / "run").training_data
    assert data is not None
    asked = [f"{name} {texts[0]}" for name in ("mine", "theirs")]
    assert has_texts(data, *asked) == [True, True]
    labelled, known = data.find_labelled(asked)
    assert known and labelled.tolist() == [True, False]


@pytest.mark.skipif(DATA is None, reason="TURNWISE_DATA is not set: real data needed")
def test_all_texts_of_chitchat_are_recognised_although_its_turns_are_combined(tmp_path: Path) -> None:
    dialogues = list(read_dialogues("chitchat", Path(DATA or "") / "chitchat"))[:300]
    repeated = sum(a.speaker == b.speaker for each in dialogues for a, b in pairwise(each.turns))
    assert repeated > 1_000
    store = write_store(tmp_path / "store", dialogues)
    data = trained(tiny("combine_turns=true"), store, tmp_path / "run")
    texts = [turn.text for each in dialogues for turn in each.turns if any(map(str.isalnum, turn.text))]
    assert all(has_texts(data, *texts))
