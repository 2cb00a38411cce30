"""A spaCy model as a detector, restored from its description, and the messages if it is missing."""

import sys
from pathlib import Path

import pytest

from tests.helpers.annotated_turns import annotate, annotated_store, as_dialogues
from turnwise.core.errors import CorpusError
from turnwise.corpus.slots.detection import detect_store
from turnwise.corpus.slots.detectors import SpacyDetector, detector_from_json


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    spacy = pytest.importorskip("spacy", reason="spaCy is not installed (turnwise[ner])")
    pipeline = spacy.blank("en")
    pipeline.add_pipe("sentencizer")
    ruler = pipeline.add_pipe("entity_ruler", config={"phrase_matcher_attr": "LOWER"})
    ruler.add_patterns(
        [
            {"label": "GPE", "pattern": "New York"},
            {"label": "GPE", "pattern": "Oslo"},
            {"label": "ORG", "pattern": "Acme"},
        ]
    )
    folder = tmp_path_factory.mktemp("spacy") / "cities"
    pipeline.to_disk(folder)
    return str(folder)


def test_entities_are_slots(model: str) -> None:
    detector = SpacyDetector(model)
    text = "does Acme, née Åcme 🙂, fly from oslo to New York?"
    (acme, oslo, york) = detector.find(text)
    found = [(slot.name, slot.value) for slot in (acme, oslo, york)]
    assert found == [("ORG", "Acme"), ("GPE", "oslo"), ("GPE", "New York")]
    assert all(text[slot.start : slot.end] == slot.value for slot in (acme, oslo, york))
    texts = [text, "good night", "", "Oslo"] * 200
    assert list(detector.find_all(texts)) == [detector.find(one) for one in texts]


def test_detector_can_be_restored_and_detects_in_a_store(model: str, tmp_path: Path) -> None:
    detector = SpacyDetector(model)
    assert detector.to_json() == {"kind": "spacy", "model": model}
    plain = annotated_store(tmp_path / "plain", as_dialogues([annotate("to Oslo"), annotate("thanks")]))
    written = detect_store(plain, tmp_path / "out", detector)
    assert (written.manifest["facts"]["with_slots"], written.manifest["facts"]["slots"]) == (1, 1)
    again = detector_from_json(written.manifest["detector"])
    assert again.find("to Oslo") == next(iter(written)).turns[0].slots


def test_missing_parts_errors_say_what_to_do(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(CorpusError, match=r"cannot load the model 'en_none'.*python -m spacy download en_none"):
        SpacyDetector("en_none")
    monkeypatch.setitem(sys.modules, "spacy", None)
    with pytest.raises(CorpusError, match=r"spaCy is not installed: pip install 'turnwise\[ner\]'"):
        SpacyDetector("en_core_web_lg")
