"""Prototype intents: few-shot draws as DSE's, prototypes and accuracy against plain loops, real data sets' published sizes."""

import os
from collections import Counter
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turnwise.corpus.sample_folder import write_sample
from turnwise.evaluation.datasets.intents import DatasetError, IntentData, Utterance, load_intents
from turnwise.evaluation.tasks.intents import few_shot, prototype_intents

DATA = os.environ.get("TURNWISE_DATA")


@settings(deadline=None)
@given(st.lists(st.sampled_from("abcd"), min_size=1, max_size=60), st.integers(1, 6), st.integers(0, 9))
def test_few_shot_draws(labels: list[str], shots: int, seed: int) -> None:
    """min(2k, n) of each label, no example twice, the larger half the support; the same seed draws the same."""
    support, validation = few_shot(labels, shots, seed)
    assert len({*support, *validation}) == len(support) + len(validation)
    for label, count in Counter(labels).items():
        drawn = min(2 * shots, count)
        assert sum(labels[index] == label for index in support) == (drawn + 1) // 2
        assert sum(labels[index] == label for index in validation) == drawn // 2
    again = few_shot(labels, shots, seed)
    assert np.array_equal(support, again[0])
    assert np.array_equal(validation, again[1])


class Letters:
    """An encoder that counts letters: slow thought, but vectors that a test can work out."""

    def encode(self, inputs: list[str], *, normalise: bool | None = None) -> npt.NDArray[np.float32]:
        vectors = np.array([[text.count(letter) + 0.1 for letter in "abcdefgh"] for text in inputs], np.float32)
        return vectors / np.linalg.norm(vectors, axis=1, keepdims=True) if normalise else vectors


def test_accuracy_equals_a_plain_statement() -> None:
    random = np.random.default_rng(0)
    letters = {"one": "aab", "two": "cdd", "three": "eef"}

    def utterances(count: int) -> tuple[Utterance, ...]:
        made = []
        for _ in range(count):
            intent = str(random.choice(list(letters)))
            text = "".join(random.choice(list(letters[intent] + "abcdefgh"), 5))
            made.append(Utterance(text, intent))
        return tuple(made)

    data = IntentData("toy", "none", utterances(60), (), utterances(40))
    outcomes = prototype_intents(Letters(), data, shots=(1, 5), seeds=3)
    labels = [utterance.intent for utterance in data.train]
    for outcome, shots in zip(outcomes, (1, 5), strict=True):
        for seed in range(3):
            support, _ = few_shot(labels, shots, seed)
            right = []
            for test in data.test:
                query = Letters().encode([test.text], normalise=True)[0]
                scores = {}
                for intent in letters:
                    members = [Letters().encode([data.train[i].text], normalise=True)[0] for i in support if labels[i] == intent]
                    scores[intent] = float(np.mean(members, axis=0) @ query)
                right.append(max(sorted(scores), key=lambda intent: scores[intent]) == test.intent)
            assert outcome.values[seed].tolist() == right


def test_the_sample_world_is_a_data_set(tmp_path: Path) -> None:
    write_sample(tmp_path / "sample", 20, 1)
    data = load_intents("sample", tmp_path / "sample")
    assert len(data.intents) == 70
    assert "out_of_scope" not in data.intents
    assert not {utterance.text for utterance in data.train} & {utterance.text for utterance in data.test}


def test_missing_and_malformed_data_sets_say_so(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="there is no intent data set 'nonsense'"):
        load_intents("nonsense", tmp_path)
    with pytest.raises(DatasetError, match="is not there"):
        load_intents("banking77", tmp_path)
    (tmp_path / "banking77" / "banking_data").mkdir(parents=True)
    with pytest.raises(DatasetError, match=r"train\.csv is not there"):
        load_intents("banking77", tmp_path)
    (tmp_path / "banking77" / "banking_data" / "train.csv").write_text("a,b\n1,2\n")
    with pytest.raises(DatasetError, match="not in banking77's layout"):
        load_intents("banking77", tmp_path)


@pytest.mark.skipif(DATA is None, reason="TURNWISE_DATA is not set: real data needed")
@pytest.mark.parametrize(
    ("name", "sizes", "intents"),
    [
        ("clinc150", (15000, 3000, 4500), 150),
        ("banking77", (10003, 0, 3080), 77),
        ("hwu64", (8954, 1076, 1076), 64),
        ("snips", (13084, 700, 700), 7),
    ],
)
def test_real_data_sets_have_their_published_sizes(name: str, sizes: tuple[int, int, int], intents: int) -> None:
    data = load_intents(name, Path(str(DATA)))
    assert (len(data.train), len(data.valid), len(data.test)) == sizes
    assert len(data.intents) == intents
