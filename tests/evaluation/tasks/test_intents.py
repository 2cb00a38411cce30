"""Few-shot draws as DSE's; prototypes, neighbours and regression against plain statements."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier

from tests.helpers.encoders import TextEncoder
from turnwise.core.dialogue import Slot
from turnwise.core.errors import DatasetError
from turnwise.evaluation.datasets.intents import IntentData, IntentUtterance, OutOfScopeTexts
from turnwise.evaluation.tasks import intents as module
from turnwise.evaluation.tasks.intents import (
    encode_examples,
    logistic_intents,
    nearest_intents,
    nearest_validation,
    prototype_intents,
    sample_few_shot,
    sample_few_shot_runs,
)


class Letters(TextEncoder):
    """Counts letters."""

    def __init__(self) -> None:
        super().__init__(count_letters, max_length=64)


def count_letters(text: str) -> list[float]:
    return [text.count(letter) + 0.1 for letter in "abcdefgh"]


def vectors(texts: Sequence[str]) -> npt.NDArray[np.float32]:
    return Letters().encode(texts, normalise=True, max_length=64)


LETTERS = {"one": "aab", "two": "cdd", "three": "eef"}


def utterances(count: int, random: np.random.Generator) -> tuple[IntentUtterance, ...]:
    made = []
    for _ in range(count):
        intent = str(random.choice(list(LETTERS)))
        made.append(IntentUtterance("".join(random.choice(list(LETTERS[intent] + "abcdefgh"), 5)), intent))
    return tuple(made)


def toy(train: int = 60, valid: int = 0, test: int = 40, out_of_scope: OutOfScopeTexts | None = None) -> IntentData:
    random = np.random.default_rng(0)
    return IntentData(
        "toy",
        utterances(train, random),
        utterances(valid, random),
        utterances(test, random),
        out_of_scope or OutOfScopeTexts(),
    )


@settings(deadline=None)
@given(st.lists(st.sampled_from("abcd"), min_size=1, max_size=60), st.integers(1, 6), st.integers(0, 9))
def test_few_shot_draws(labels: list[str], shots: int, seed: int) -> None:
    """min(2k, n) of each label, no example twice, the larger half the support; the same seed draws the same."""
    support, validation = sample_few_shot(labels, shots, seed)
    assert len({*support, *validation}) == len(support) + len(validation)
    for label, count in Counter(labels).items():
        sampled = min(2 * shots, count)
        assert sum(labels[index] == label for index in support) == (sampled + 1) // 2
        assert sum(labels[index] == label for index in validation) == sampled // 2
    again = sample_few_shot(labels, shots, seed)
    assert np.array_equal(support, again[0])
    assert np.array_equal(validation, again[1])
    several = sample_few_shot_runs(labels, (1, shots), range(seed + 1))
    assert several.keys() == {(count, each) for count in (1, shots) for each in range(seed + 1)}
    assert np.array_equal(support, several[shots, seed][0])
    assert np.array_equal(validation, several[shots, seed][1])


def test_prototypes_equal_a_plain_statement() -> None:
    data, encoder = toy(), Letters()
    outcomes = prototype_intents(encoder, data, shots=(1, 5), seeds=3)
    assert len(encoder.encoded) == len(set(encoder.encoded))
    labels = [utterance.intent for utterance in data.train]
    variants = [(shots, name) for shots in (1, 5) for name in ("prototypes", "mean vectors, dot product")]
    for outcome, (shots, name) in zip(outcomes, variants, strict=True):
        assert outcome.key == ("intents", "toy", f"{shots}-shot {name}", "accuracy")
        for seed in range(3):
            support, _ = sample_few_shot(labels, shots, seed)
            for number, test in enumerate(data.test):
                query = vectors([test.text])[0]
                scores = {}
                for intent in LETTERS:
                    members = [vectors([data.train[index].text])[0] for index in support if labels[index] == intent]
                    mean = np.mean(members, axis=0)
                    scores[intent] = float(mean @ query) / (np.linalg.norm(mean) if name == "prototypes" else 1)
                ahead = scores[test.intent] - max(score for intent, score in scores.items() if intent != test.intent)
                # rounding decides between those that are all but level
                assert outcome.evidence[seed, number] == (ahead > 0) or abs(ahead) < 1e-6


def test_a_tie_of_prototypes_goes_against_the_model() -> None:
    """Both intents have the same training utterance: whichever comes first in the alphabet, neither is found."""
    train = (IntentUtterance("ab", "one"), IntentUtterance("ab", "two"), IntentUtterance("cc", "three"))
    test = (IntentUtterance("ab", "one"), IntentUtterance("ab", "two"), IntentUtterance("c", "three"))
    outcomes = prototype_intents(Letters(), IntentData("toy", train, (), test), shots=(1,), seeds=1)
    assert [outcome.evidence.tolist() for outcome in outcomes] == [[[0, 0, 1]]] * 2


def test_an_intent_without_training_utterances_is_never_found() -> None:
    data = IntentData(
        "toy",
        (IntentUtterance("aaa", "one"), IntentUtterance("ccc", "two")),
        (),
        (IntentUtterance("aaa", "one"), IntentUtterance("e", "new")),
    )
    for task in (prototype_intents, nearest_intents):
        for outcome in task(Letters(), data):
            assert outcome.evidence.mean() == 0.5


def test_the_nearest_neighbour_is_scikit_learns() -> None:
    """On vectors without ties, for one neighbour and for several, where no vote is even."""
    random = np.random.default_rng(3)
    spread = random.normal(size=(140, 8)).astype(np.float32)
    spread /= np.linalg.norm(spread, axis=1, keepdims=True)
    names = [f"text {number}" for number in range(140)]

    labels = random.choice(["one", "two"], 140)
    rows = tuple(IntentUtterance(name, str(label)) for name, label in zip(names, labels, strict=True))
    data = IntentData("toy", rows[:100], (), rows[100:])
    outcomes = nearest_intents(
        TextEncoder(lambda text: spread[int(text.split()[1])], 64), data, neighbours=(1, 3, 5, 51)
    )
    assert [outcome.setting for outcome in outcomes] == ["1-NN", "3-NN", "5-NN", "51-NN"]
    for outcome, count in zip(outcomes, (1, 3, 5, 51), strict=True):
        predicted = KNeighborsClassifier(count, metric="cosine").fit(spread[:100], labels[:100]).predict(spread[100:])
        assert outcome.evidence[0].tolist() == (predicted == labels[100:]).tolist()


class Scattered(TextEncoder):
    """Vectors in any direction: only equal texts are equally near."""

    def __init__(self) -> None:
        super().__init__(lambda text: np.random.default_rng([ord(letter) for letter in text]).normal(size=6), 64)


rows = st.tuples(st.text("abc", min_size=1, max_size=2), st.sampled_from("xyz"))


@settings(deadline=None)
@given(st.lists(rows, min_size=1, max_size=15), rows, st.integers(1, 17))
def test_votes_equal_a_plain_statement(train: list[tuple[str, str]], query: tuple[str, str], count: int) -> None:
    """Most votes, then the higher sum, then against the model; of equally near references wrong ones come first."""
    data = IntentData("toy", tuple(IntentUtterance(*row) for row in train), (), (IntentUtterance(*query),))
    (outcome,) = nearest_intents(Scattered(), data, neighbours=(count,))
    encoded, *others = Scattered().encode([query[0], *(text for text, _ in train)], normalise=True, max_length=64)
    similarity = {text: float(vector @ encoded) for (text, _), vector in zip(train, others, strict=True)}
    near = sorted(train, key=lambda row: (-similarity[row[0]], row[1] == query[1]))[:count]
    polls = {}
    for intent in "xyz":
        members = [similarity[text] for text, label in near if label == intent]
        polls[intent] = (len(members), sum(members))
    ours = polls.pop(query[1])
    assert bool(outcome.evidence[0, 0]) == (ours[0] > 0 and all(ours > others for others in polls.values()))


def test_even_votes_go_against_the_model() -> None:
    rows = (IntentUtterance("aab", "one"), IntentUtterance("aab", "two"))
    data = IntentData("toy", rows, (), rows)
    for outcome in nearest_intents(Letters(), data, neighbours=(1, 2, 9)):
        assert outcome.evidence.tolist() == [[0, 0]]


def test_blocks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    data = toy()
    whole = nearest_intents(Letters(), data, neighbours=(1, 3))
    monkeypatch.setattr(module, "_MAX_SIMILARITIES", 130)
    for before, after in zip(whole, nearest_intents(Letters(), data, neighbours=(1, 3)), strict=True):
        assert np.array_equal(before.evidence, after.evidence)


def slotted(text: str, intent: str, *slots: tuple[str, int, int]) -> IntentUtterance:
    return IntentUtterance(text, intent, tuple(Slot.from_text(text, *slot) for slot in slots))


def test_templates_are_references_too() -> None:
    """Each once an intent, whatever its slots are called, and none that is its utterance's own text."""
    train = (
        slotted("aaaab", "one", ("slot", 4, 5)),
        slotted("aaaac", "one", ("other", 4, 5)),
        slotted("aaaad", "two", ("slot", 4, 5)),
        slotted("cc", "two"),
    )
    data = IntentData("toy", train, (), (slotted("aaaa", "one"),))
    encoder = Letters()
    nearest_intents(encoder, data)
    assert sorted(encoder.encoded) == ["aaaa", "aaaab", "aaaac", "aaaad", "aaaa{SLOT}", "cc"]
    # of 6 references, the template of 'one' and its two utterances have 3 votes and lie nearer than the others'
    assert nearest_intents(Letters(), data, neighbours=(6,))[0].evidence.tolist() == [[1]]


def test_slots_change_nothing_for_an_encoder_that_reads_texts() -> None:
    """Texts that are said twice, with other slots and sometimes another intent: ties stay ties."""
    plain = toy(train=100, valid=40, test=60)
    plain = replace(plain, train=plain.train + tuple(replace(each, intent="one") for each in plain.train))

    def marked(rows: tuple[IntentUtterance, ...]) -> tuple[IntentUtterance, ...]:
        return tuple(
            slotted(each.text, each.intent, ("x", number % 3, number % 3 + 1)) for number, each in enumerate(rows)
        )

    data = replace(plain, train=marked(plain.train), valid=marked(plain.valid), test=marked(plain.test))
    assert len({each.text for each in data.train}) < len({each.input for each in data.train})

    class Rounded(Letters):
        """Not quite the same twice."""

        def encode(self, inputs, *, normalise=None, max_length=None):  # type: ignore[no-untyped-def]
            predicted = super().encode(inputs, normalise=normalise, max_length=max_length)
            return predicted + np.random.default_rng(0).normal(scale=1e-7, size=predicted.shape).astype(np.float32)

    tasks = (lambda encoder, data: prototype_intents(encoder, data, seeds=2), logistic_intents)
    for task in tasks:
        for before, after in zip(task(Letters(), plain), task(Letters(), data), strict=True):
            assert np.array_equal(before.evidence, after.evidence)
    vectors, rows = encode_examples(Rounded(), data.train)
    assert len(vectors) > len({each.text for each in data.train}) == len(set(rows.tolist()))
    for each, row in zip(data.train, rows, strict=True):
        assert row == rows[[other.text for other in data.train].index(each.text)]


def test_an_encoder_may_look_at_slots() -> None:
    """Then utterances of one text are told apart by them."""

    class ByName:
        def encode(self, inputs, *, normalise=None, max_length=None):  # type: ignore[no-untyped-def]
            return np.eye(3, dtype=np.float32)[
                [0 if isinstance(item, str) else int(item[0].slots[0].name) for item in inputs]
            ]

    train = (slotted("a b", "one", ("1", 0, 1)), slotted("a b", "two", ("2", 0, 1)))
    data = IntentData("toy", train, (), train)
    for outcome in (*nearest_intents(ByName(), data), *prototype_intents(ByName(), data, shots=(1,), seeds=1)):
        assert outcome.evidence.tolist() == [[1, 1]]
    (outcome,) = nearest_intents(Letters(), data)
    assert outcome.evidence.tolist() == [[0, 0]]


@pytest.mark.parametrize("valid", [0, 30])
def test_validation_is_the_nearest_neighbour_of_what_may_be_looked_at(valid: int) -> None:
    """Equal to evaluating on the validation set as the test set, or on a tenth removed from the references."""
    data = toy(
        train=120, valid=valid, test=3, out_of_scope=OutOfScopeTexts(("hhhh", "gh"), ("hhh",) if valid else (), ("h",))
    )
    marked = tuple(slotted(each.text, each.intent, ("x", 1, 2 + number % 3)) for number, each in enumerate(data.train))
    data = replace(data, train=marked)
    whole = data.with_out_of_scope()
    if valid:
        held, kept = whole.valid, whole.train
    else:
        places = module.hold_out_tenth([each.intent for each in whole.train], "toy")
        kept, held = (tuple(whole.train[place] for place in part) for part in places)
        assert Counter(kept) + Counter(held) == Counter(whole.train)
    encoded, expected = Letters(), Letters()
    (outcome,) = nearest_intents(expected, IntentData("toy", kept, (), held))
    predicted = nearest_validation(encoded, data)
    assert 0 < predicted < 1
    assert predicted == pytest.approx(outcome.evidence.mean())
    assert encoded.encoded == expected.encoded
    # no test utterance is looked at
    assert nearest_validation(Letters(), replace(data, test=())) == nearest_validation(Letters(), data)


def test_out_of_scope_is_one_more_intent() -> None:
    data = toy(out_of_scope=OutOfScopeTexts(train=("hhhh",), test=("hhh", "aab")))
    (outcome,) = nearest_intents(Letters(), data)
    assert outcome.evidence.shape == (1, 42)
    assert outcome.evidence[0, -2:].tolist() == [1, 0]
    (outcome,) = nearest_intents(Letters(), data, include_out_of_scope=False)
    assert (outcome.setting, outcome.evidence.shape) == ("1-NN, in scope only", (1, 40))


def test_regression_takes_the_best_strength_on_validation() -> None:
    data = toy(valid=30)
    (outcome,) = logistic_intents(Letters(), data, strengths=(0.001, 1.0, 100.0))
    assert outcome.key == ("intents", "toy", "logistic regression", "accuracy")

    def split(rows: Sequence[IntentUtterance]) -> tuple[npt.NDArray[np.float32], list[str]]:
        return vectors([row.text for row in rows]), [row.intent for row in rows]

    models = [
        LogisticRegression(C=strength, max_iter=1_000).fit(*split(data.train)) for strength in (0.001, 1.0, 100.0)
    ]
    scores = [model.score(*split(data.valid)) for model in models]
    assert scores[0] < max(scores)
    best = models[scores.index(max(scores))]
    x, y = split(data.test)
    assert outcome.evidence[0].tolist() == (best.predict(x) == np.array(y)).tolist()


def test_regression_without_validation_holds_out_a_tenth_and_then_takes_all() -> None:
    data = toy(train=200)
    (outcome,) = logistic_intents(Letters(), data, strengths=(100.0,))
    model = LogisticRegression(C=100.0, max_iter=1_000).fit(
        vectors([row.text for row in data.train]), [row.intent for row in data.train]
    )
    expected = model.predict(vectors([row.text for row in data.test])) == np.array([row.intent for row in data.test])
    assert outcome.evidence[0].tolist() == expected.tolist()


@settings(deadline=None)
@given(st.lists(st.sampled_from("abc"), min_size=1, max_size=80))
def test_a_tenth_of_each_intent_is_held_out(labels: list[str]) -> None:
    counts = Counter(labels)
    if max(counts.values()) == 1:
        with pytest.raises(DatasetError, match="toy has neither a validation set nor a second example"):
            module.hold_out_tenth(labels, "toy")
        return
    kept, held = module.hold_out_tenth(labels, "toy")
    assert sorted([*kept, *held]) == list(range(len(labels)))
    predicted = Counter(labels[index] for index in held)
    assert predicted == Counter({label: max(1, count // 10) for label, count in counts.items() if count > 1})
