"""A classifier that fits its encoder to the examples: calibrated by encoders that have not seen what they judge, saved whole."""

from collections.abc import Callable
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest

from tests.helpers.made_up_intents import OUTSIDE, pairs
from turnwise import Encoder, IntentClassifier
from turnwise.assist.intents import tuned as tuned_intents
from turnwise.assist.intents.examples import IntentError
from turnwise.assist.intents.tuning import Tuning, tune

TUNING = Tuning(epochs=2, groups=4, group_size=2, learning_rate=1e-3)


@pytest.fixture(scope="module")
def encoder(tiny_folder: Callable[[str], Path]) -> Encoder:
    return Encoder.load(tiny_folder("bert"), device="cpu")


def test_what_is_judged_was_not_fitted_to(encoder: Encoder, tmp_path: Path) -> None:
    texts, intents = pairs()
    outside = list(dict.fromkeys(OUTSIDE))
    fitted_to: list[list[str]] = []

    def noted(encoder, texts, intents, tuning, *, progress):
        fitted_to.append(list(texts))
        return tune(encoder, texts, intents, tuning, progress=progress)

    classifier = IntentClassifier(encoder, tuning=TUNING, false_rejection=0.2)
    with patch.object(tuned_intents, "tune", noted):
        classifier.fit(texts, intents, out_of_scope=outside)
    assert sorted(fitted_to[0]) == sorted(texts)
    # every example is left out once, and none that is out of scope is ever fitted to
    left_out = [text for seen in fitted_to[1:] for text in set(texts) - set(seen)]
    assert sorted(left_out) == sorted(texts)
    assert not {text for seen in fitted_to for text in seen} & set(outside)
    assert classifier.calibration_.held_out
    assert classifier.calibration_.texts == len(texts)
    assert classifier.calibration_.out_of_scope_recall is not None
    # the encoder that came in is as it was, and the classifier's own is not
    assert classifier.encoder_ is not encoder
    assert np.abs(classifier.encoder_.encode(texts) - encoder.encode(texts)).max() > 1e-3
    classifier.add("hours", ["when do you open", "opening times"])
    assert classifier.calibration_.texts == len(texts)
    classifier.save(tmp_path / "tuned")
    loaded = IntentClassifier.load(tmp_path / "tuned")
    assert loaded.tuning == TUNING
    assert loaded.predict_proba(texts) == pytest.approx(classifier.predict_proba(texts), abs=1e-4)
    assert (tmp_path / "tuned" / "encoder" / "modules.json").is_file()


def test_vectors_of_another_encoder_are_refused(encoder: Encoder) -> None:
    texts, intents = pairs()
    with pytest.raises(IntentError, match="leave them out"):
        IntentClassifier(encoder, tuning=TUNING).fit(texts, intents, vectors=encoder.encode(texts, normalise=True))


def test_one_example_an_intent_says_nothing_of_new_texts(encoder: Encoder) -> None:
    with pytest.raises(IntentError, match="no intent has a second example"):
        IntentClassifier(encoder, tuning=TUNING).fit(["my parcel", "my money"], ["track_order", "refund"])
    never = IntentClassifier(encoder, tuning=TUNING, false_rejection=None).fit(
        ["my parcel", "my money"], ["track_order", "refund"]
    )
    assert never.calibration_.threshold is None
