"""Intents from names and a log: what is learnt, what is ignored, and what is kept when examples change."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import cohen_kappa_score

from tests.helpers.bag_of_words import BagOfWords
from tests.helpers.intent_examples import EXAMPLES, OUTSIDE, pairs
from turnwise import Dialogue, IntentClassifier, Turn
from turnwise.assist.intents import log_texts
from turnwise.assist.intents.examples import IntentExamples, IntentNames, describe_intent
from turnwise.assist.intents.log_texts import LabelledLog
from turnwise.assist.intents.numerics import fit_logistic, fit_soft_logistic
from turnwise.assist.intents.selection import select_support
from turnwise.core.errors import IntentError

SIZE, INTENTS = 32, 6
NAMES = tuple(f"intent {letter * 3}" for letter in "abcdef")


def unit(vectors):
    return (vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)).astype(np.float32)


class World:
    """Texts of intents around centres, names at some distance from them, and texts about other things."""

    def __init__(self, seed=0, spread=0.9):
        self.random = np.random.default_rng(seed)
        self.centres = unit(self.random.normal(size=(INTENTS, SIZE)))
        self.spread = spread
        self.names = IntentNames(NAMES, NAMES, unit(self.centres + self._noise(INTENTS, 0.7)))

    def _noise(self, count, spread):
        return spread * unit(self.random.normal(size=(count, SIZE)))

    def texts(self, count):
        labels = np.arange(count) % INTENTS
        return unit(self.centres[labels] + self._noise(count, self.spread)), labels

    def foreign(self, count):
        centres = unit(self.random.normal(size=(4, SIZE)))
        return unit(centres[np.arange(count) % 4] + self._noise(count, self.spread))

    def examples(self, shots):
        vectors, labels = self.texts(shots * INTENTS)
        named = tuple((f"text {row}", NAMES[label]) for row, label in enumerate(labels))
        return IntentExamples.from_pairs(named, vectors.reshape(-1, SIZE), self.names)


def accuracy(labels, log):
    return (log.labels.argmax(1) == labels).mean()


# ---- names


@pytest.mark.parametrize(
    ("intent", "words"),
    [
        ("cancel_order", "cancel order"),
        ("insurance.fileClaim", "insurance file claim"),
        ("BookRestaurant", "book restaurant"),
        ("FAQ-opening hours", "faq opening hours"),
        ("转账", "转账"),
        ("intent_17", ""),
        ("17", ""),
        ("cluster-b", ""),
        ("deadbeef", ""),
        ("a1b2c3d4", ""),
        ("__", ""),
    ],
)
def test_names_become_words_unless_they_say_nothing(intent, words):
    assert describe_intent(intent) == words


def test_a_name_counts_as_one_more_example():
    encoder = BagOfWords()
    named = IntentClassifier(encoder, head="prototypes").fit(*pairs())
    texts, intents = pairs()
    words = [intent.replace("_", " ") for intent in EXAMPLES]
    written = IntentClassifier(encoder, head="prototypes", use_names=False)
    written.fit([*texts, *words], [*intents, *EXAMPLES])
    queries = ["where did it go", "cancel that", "my money"]
    np.testing.assert_allclose(
        named.model_.similarity.score(encoder.encode(queries)),
        written.model_.similarity.score(encoder.encode(queries)),
    )
    assert len(named.model_.examples.labels) == len(texts)


def test_names_alone_classify_without_abstaining():
    classifier = IntentClassifier(BagOfWords(), false_rejection=None)
    classifier.fit([], [], descriptions={"track": "where is my parcel", "refund": "", "cancel_order": ""})
    assert classifier.predict(["cancel the order", "parcel where", "refund me"]).tolist() == [
        "cancel_order",
        "track",
        "refund",
    ]
    assert classifier.decide(["parcel"])[0].nearest == ()
    with pytest.raises(IntentError, match="or a log"):
        IntentClassifier(BagOfWords()).fit([], [], descriptions={"refund": "", "cancel": ""})
    with pytest.raises(IntentError, match=r"'intent_3'.*describe it"):
        classifier.fit([], [], descriptions={"refund": "", "intent_3": ""})
    with pytest.raises(IntentError, match="use_names is False"):
        IntentClassifier(BagOfWords(), use_names=False).fit([], [], descriptions={"refund": ""})


def test_names_follow_changes_of_examples():
    classifier = IntentClassifier(BagOfWords()).fit(*pairs(), descriptions={"hours": "are you open on sunday"})
    assert "hours" in classifier.classes_
    classifier.add("delete_account", ["remove my account"])
    assert classifier.predict(["please delete account"]).tolist() == ["delete_account"]
    classifier.remove("delete_account")
    assert classifier.classes_.tolist() == ["cancel_order", "hours", "refund", "track_order"]


# ---- labels of a log


@pytest.mark.parametrize("shots", [0, 1, 3])
def test_a_log_is_labelled_better_than_by_prototypes(shots):
    world = World()
    vectors, labels = world.texts(600)
    examples = world.examples(shots)
    support, own = examples.support
    prototypes = unit(np.eye(INTENTS)[own].T @ support)
    by_prototypes = ((vectors @ prototypes.T).argmax(1) == labels).mean()
    log = LabelledLog.label(vectors, examples)
    assert accuracy(labels, log) >= max(0.95, by_prototypes)
    np.testing.assert_allclose(log.labels.sum(1), 1, atol=2e-3)
    assert (log.in_scope == 1).all()


def test_texts_about_other_things_do_not_count():
    world = World()
    vectors, labels = world.texts(600)
    log = LabelledLog.label(np.concatenate([vectors, world.foreign(600)]), world.examples(1))
    assert log.in_scope[:600].mean() > 0.95
    assert log.in_scope[600:].mean() < 0.05
    assert (log.labels[:600].argmax(1) == labels).mean() > 0.95


def test_labels_are_propagated_as_in_a_dense_restatement():
    random = np.random.default_rng(3)
    vectors = unit(random.normal(size=(40, 8)) + 0.5)
    known = np.eye(3, dtype=np.float32)[random.integers(0, 3, 5)]
    cosines = vectors.astype(np.float64) @ vectors.T
    np.fill_diagonal(cosines, -np.inf)
    graph = np.zeros((40, 40))
    for row, each in enumerate(cosines):
        near = np.argsort(-each)[:10]
        graph[row, near] = np.maximum(each[near], 0) ** 3
    graph = np.maximum(graph, graph.T)
    scale = 1 / np.sqrt(graph.sum(1))
    graph *= scale[:, None] * scale
    start = np.zeros((40, 3))
    start[:5] = known
    expected = start
    for _ in range(20):
        expected = 0.9 * graph @ expected + 0.1 * start
    np.testing.assert_allclose(log_texts._propagate_labels(vectors, known), expected, atol=1e-5)


def test_only_separate_modes_are_told_apart():
    random = np.random.default_rng(0)
    two = np.concatenate([random.normal(0, 1, 300), random.normal(8, 1, 700)])
    upper = log_texts._upper_mode(two)
    assert upper[:300].max() < 0.5 < upper[300:].min()
    assert (log_texts._upper_mode(random.normal(0, 1, 1_000)) == 1).all()
    assert (log_texts._upper_mode(np.zeros(5)) == 1).all()


@given(st.integers(2, 5), st.integers(0, 1_000))
def test_soft_regression_equals_the_hard_one_for_hard_labels(classes, seed):
    random = np.random.default_rng(seed)
    labels = np.arange(40) % classes
    vectors = unit(random.normal(size=(40, 6)) + np.eye(classes, 6)[labels])
    weights = random.uniform(0.5, 2, 40)
    weights *= 40 / weights.sum()
    hard = fit_logistic(vectors, labels, 10.0, weights, tolerance=1e-6)
    soft = fit_soft_logistic(
        vectors, np.eye(classes, dtype=np.float32)[labels], weights.astype(np.float32), 10.0, tolerance=1e-6
    )
    for one, other in zip(hard, soft, strict=True):
        np.testing.assert_allclose(one, other, atol=0.02)


# ---- the classifier


def fit_world(world, shots, log, **settings):
    examples = world.examples(shots)
    support = select_support(examples, log, 0 if log is None else len(log), 0)
    return examples, support


def test_a_log_about_other_things_is_left_out_where_examples_show_it():
    world = World(spread=0.6)
    _, useful = fit_world(world, 10, world.texts(900)[0])
    assert useful.log is not None and useful.selection.log_texts == 900
    shuffled = unit(np.random.default_rng(0).normal(size=(900, SIZE)) + 3 * world.centres[0] - 2 * world.centres[1])
    assert useful.selection.accuracy["log"] >= useful.selection.accuracy["examples"]
    _, harmful = fit_world(World(spread=1.3), 10, shuffled)
    assert harmful.selection.accuracy.keys() == {"examples", "names", "log"}
    assert "left-out examples" in harmful.selection.reason


@pytest.mark.parametrize("shots", [0, 1, 2])
def test_a_log_is_left_out_where_its_labels_are_doubtful(shots):
    world = World()
    _, useful = fit_world(world, shots, world.texts(900)[0])
    assert useful.log is not None and useful.log.agreement > 0.8
    noise = unit(world.random.normal(size=(900, SIZE)))
    if not shots:
        with pytest.raises(IntentError, match=r"hardly agree \(Cohen's kappa 0\.\d+\), so it cannot be used"):
            fit_world(world, shots, noise)
        return
    _, doubtful = fit_world(world, shots, noise)
    assert doubtful.log is None and doubtful.selection.log_texts == 0
    assert doubtful.selection.names == INTENTS and "hardly agree" in doubtful.selection.reason


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.floats(0.125, 1, width=16)), min_size=1))
def test_agreement_is_weighted_kappa(texts):
    first, second, weights = (np.array(each) for each in zip(*texts, strict=True))
    if len({*first, *second}) == 1:
        assert log_texts._kappa(first, second, weights) == 1
    else:
        expected = cohen_kappa_score(first, second, sample_weight=weights)
        assert log_texts._kappa(first, second, weights) == pytest.approx(expected, abs=1e-6)


def test_misleading_names_are_left_out():
    world = World(spread=0.9)
    world.names = IntentNames(NAMES, NAMES, np.roll(world.centres, 1, axis=0))
    _, support = fit_world(world, 3, None)
    assert support.examples.names is None and support.selection.names == 0


class Known:
    """Gives texts named by their row the vectors of a matrix."""

    def __init__(self, vectors, names):
        self.vectors = {f"text {row}": vector for row, vector in enumerate(vectors)}
        self.vectors |= dict(zip(names.words, names.vectors, strict=True))

    def encode(self, texts, *, normalise=True, max_length=None):
        return np.array([self.vectors[text] for text in texts])


@pytest.mark.parametrize("shots", [1, 2, 5, 10])
def test_the_requested_part_of_new_texts_is_rejected(shots):
    rates = []
    for seed in range(6):
        world = World(seed, spread=1.0)
        vectors, labels = world.texts(2_000)
        encoder = Known(vectors, world.names)
        texts, intents = [f"text {row}" for row in range(2_000)], [NAMES[label] for label in labels]
        classifier = IntentClassifier(encoder).fit(
            texts[: shots * INTENTS],
            intents[: shots * INTENTS],
            log=texts[100:1_000],
            descriptions={name: name for name in NAMES},
        )
        rates.append((classifier.predict(texts[1_000:]) == "out_of_scope").mean())
    assert 0.03 <= np.mean(rates) <= 0.08


@pytest.mark.parametrize("head", ["auto", "prototypes"])
def test_a_saved_classifier_decides_the_same(tmp_path, head):
    texts, intents = pairs()
    classifier = IntentClassifier(BagOfWords(), head=head).fit(
        texts[::2], intents[::2], log=[*texts, *OUTSIDE], descriptions={"refund": "money back"}
    )
    classifier.save(tmp_path, encoder_name="bag")
    loaded = IntentClassifier.load(tmp_path, encoder=BagOfWords())
    queries = ["where is the parcel", "cancel it", "money", "sing a song"]
    for intent, added in [("refund", []), ("refund", ["pay me back"]), ("new", ["hm"])]:
        for each in (classifier, loaded):
            each.add(intent, added)
        np.testing.assert_allclose(classifier.predict_proba(queries), loaded.predict_proba(queries), atol=1e-3)
        assert [each.intent for each in classifier.decide(queries)] == [each.intent for each in loaded.decide(queries)]
    assert loaded.support_selection_ == classifier.support_selection_
    assert loaded.descriptions_ == {"refund": "money back"}


def test_an_added_example_is_learnt_beside_a_log():
    texts, intents = pairs()
    classifier = IntentClassifier(BagOfWords()).fit(texts[::2], intents[::2], log=[*texts, *OUTSIDE])
    classifier.add("music", ["sing a song", "play a song"])
    assert classifier.predict(["sing a song"]).tolist() == ["music"]
    assert classifier.predict(["track my parcel please"]).tolist() == ["track_order"]


# ---- reading a log


def test_kinds_of_logs_give_the_same_classifier(tmp_path):
    from tests.helpers.stores import write_store

    texts, intents = pairs()
    log = [*texts, *OUTSIDE[:5]]
    dialogues = [
        Dialogue(f"d{number}", (Turn("user", text), Turn("system", "let me see"))) for number, text in enumerate(log)
    ]
    vectors = BagOfWords().encode(sorted(set(log), key=log.index))
    kinds = [log, dialogues, iter(dialogues), write_store(tmp_path / "store", dialogues), vectors]
    fitted = [IntentClassifier(BagOfWords()).fit(texts[:6], intents[:6], log=each) for each in kinds]
    for each in fitted[1:]:
        np.testing.assert_allclose(
            each.predict_proba(["where is it", "money"]), fitted[0].predict_proba(["where is it", "money"]), atol=1e-3
        )
    with pytest.raises(IntentError, match="no text of a user"):
        IntentClassifier(BagOfWords()).fit(texts, intents, log=[])


def test_a_large_log_is_sampled(monkeypatch):
    monkeypatch.setattr(log_texts, "MAX_LOG_TEXTS", 50)
    encoded = []

    def encode(texts):
        encoded.extend(texts)
        return BagOfWords().encode(texts)

    vectors, size = log_texts.sample_log((f"text {row % 5_000}" for row in range(10_000)), encode, 0)
    assert (len(vectors), size, len(set(encoded))) == (50, 10_000, 50)
    assert min(int(text.split()[1]) for text in encoded) < 1_000 < 4_000 < max(int(text.split()[1]) for text in encoded)


def test_similarity_to_out_of_scope_examples_counts_for_the_log_as_well():
    rates = []
    for seed in range(4):
        world = World(seed, spread=1.0)
        vectors, labels = world.texts(2_000)
        encoder = Known(np.concatenate([vectors, world.foreign(40)]), world.names)
        texts, intents = [f"text {row}" for row in range(2_040)], [NAMES[label] for label in labels]
        classifier = IntentClassifier(encoder).fit(
            texts[:12],
            intents[:12],
            log=texts[100:1_000],
            out_of_scope=texts[2_000:],
            descriptions={name: name for name in NAMES},
        )
        assert classifier.calibration_.caution > 0
        rates.append((classifier.predict(texts[1_000:2_000]) == "out_of_scope").mean())
    assert 0.03 <= np.mean(rates) <= 0.08
