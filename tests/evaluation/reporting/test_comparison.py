"""Comparisons find planted differences and no others, reject what is not comparable, and correct for their number."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from zlib import crc32

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwise.core.errors import TurnwiseError
from turnwise.evaluation.metrics import BOOTSTRAP_SAMPLES, Outcome, Statistic, bootstrap_outcomes
from turnwise.evaluation.reporting.comparison import compare, comparison_json, comparison_text, holm
from turnwise.evaluation.reporting.report import escape_markdown
from turnwise.evaluation.results import Results, write_results

Array = npt.NDArray[np.float64]
Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Writes a folder of results: `write(name, outcomes, data set=hash, …)`."""

    def written(name: str, outcomes: Sequence[Outcome], suite: str = "toy", **hashes: str) -> Path:
        results = Results(
            name,
            suite,
            data=[
                {"name": dataset, "tasks": ["toy", "intents"], "sha256": digest} for dataset, digest in hashes.items()
            ],
        )
        results.add(outcomes)
        write_results(results, tmp_path / name)
        return tmp_path / name

    return written


def flips(chance: float, seed: int, runs: int = 1, examples: int = 400) -> Array:
    return (np.random.default_rng(seed).random((runs, examples)) < chance).astype(float)


def make_outcome(
    evidence: Array, dataset: str = "toy", metric: str = "accuracy", statistic: Statistic = "mean"
) -> Outcome:
    return Outcome("intents", dataset, "1-shot", metric, evidence, statistic)


def test_planted_differences_are_found(write: Write) -> None:
    base = write(
        "base",
        [make_outcome(flips(0.6, 1), "up"), make_outcome(flips(0.6, 2), "down"), make_outcome(flips(0.6, 3), "same")],
    )
    other = write(
        "other",
        [make_outcome(flips(0.8, 4), "up"), make_outcome(flips(0.4, 5), "down"), make_outcome(flips(0.6, 6), "same")],
    )
    up, down, same, mean = compare(base, other)
    assert [compared.verdict for compared in (up, down, same)] == ["better", "worse", "no clear difference"]
    for compared in (up, down, same, mean):
        assert compared.difference == pytest.approx(compared.second - compared.first)
        assert compared.low <= compared.difference <= compared.high
        assert compared.p <= compared.corrected <= 1
    assert up.low > 0 > down.high
    assert same.low < 0 < same.high


def test_less_is_better_where_the_metric_says_so(write: Write) -> None:
    evidence = flips(0.5, 1)[..., None] + [0.0, 1.0]
    base = write("base", [make_outcome(evidence, metric="uniformity", statistic="log ratio")])
    other = write("other", [make_outcome(evidence * [0.9, 1.0], metric="uniformity", statistic="log ratio")])
    (compared,) = compare(base, other)
    assert compared.difference < 0
    assert compared.verdict == "better"
    assert compare(other, base)[0].verdict == "worse"


def test_examples_are_paired(write: Write) -> None:
    """A model that is right in ten more places is clearly better, though the intervals of the two overlap by far."""
    first = flips(0.5, 1)
    second = first.copy()
    second[0, np.flatnonzero(first[0] == 0)[:10]] = 1
    before, after = make_outcome(first), make_outcome(second)
    assert before.row().high > after.row().value
    (compared,) = compare(write("base", [before]), write("other", [after]))
    assert compared.verdict == "better"


def test_a_model_is_not_better_than_itself(write: Write) -> None:
    pairs = np.stack([flips(0.6, 2), flips(0.6, 3)], -1)
    base = write("base", [make_outcome(flips(0.6, 1, runs=3)), make_outcome(pairs, "pairs", statistic="pearson")])
    for compared in compare(base, base):
        assert (compared.difference, compared.low, compared.high, compared.p, compared.corrected) == (0, 0, 0, 1, 1)
        assert compared.verdict == "no clear difference"


def test_p_values_are_those_of_the_bootstrap(write: Write) -> None:
    first, second = make_outcome(flips(0.6, 1, runs=2)), make_outcome(flips(0.63, 2, runs=2))
    (compared,) = compare(write("base", [first]), write("other", [second]))
    seed = crc32(b"toy")
    differences = np.subtract(*bootstrap_outcomes([second, first], seed=seed))
    above, below = sum(d >= 0 for d in differences), sum(d <= 0 for d in differences)
    assert compared.p == pytest.approx(min(1, 2 * (1 + min(above, below)) / (1 + BOOTSTRAP_SAMPLES)))
    assert (compared.low, compared.high) == pytest.approx(tuple(np.percentile(differences, [2.5, 97.5])), abs=1e-4)


def test_many_clear_differences_stay_clear(write: Write) -> None:
    """With no more drawings than for one figure, none of 60 could be clear after the correction."""
    base = write("base", [make_outcome(flips(0.2, place, examples=60), f"toy {place}") for place in range(60)])
    other = write("other", [make_outcome(flips(0.9, 99 + place, examples=60), f"toy {place}") for place in range(60)])
    compared = compare(base, other)
    assert {one.verdict for one in compared} == {"better"}
    assert max(one.corrected for one in compared) < 0.05


@given(st.lists(st.floats(0, 1), max_size=12))
def test_holm_steps_down(values: list[float]) -> None:
    """A hypothesis falls if it and all with smaller p-values fall, each held against the level over those left."""
    corrected = holm(values)
    order = sorted(range(len(values)), key=lambda place: values[place])
    running = 0.0
    for step, place in enumerate(order):
        running = max(running, min(1.0, values[place] * (len(values) - step)))
        assert corrected[place] == pytest.approx(running)


def test_what_cannot_be_compared_is_listed_with_the_reason(write: Write) -> None:
    same, constant = flips(0.5, 1), np.ones((1, 5, 2))
    scored = np.stack([flips(0.5, 1), flips(0.5, 2)], -1)
    means = {
        "fine": (same, flips(0.5, 3)),
        "hash": (same, same),
        "unhashed": (same, same),
        "runs": (same, flips(0.5, 1, runs=2)),
        "examples": (same, flips(0.5, 1, examples=1_399)),
        "lost": (same, None),
        "new": (None, same),
    }
    scores: dict[str, tuple[Statistic, Statistic, Array]] = {
        "statistic": ("pearson", "spearman", scored),
        "truth": ("auroc", "auroc", 1 - scored),
        "gold": ("pearson", "pearson", 1 - scored),
    }
    first, second = (
        [make_outcome(pair[side], name) for name, pair in means.items() if pair[side] is not None]
        + [
            make_outcome((scored, evidence)[side], name, statistic=pair[side])
            for name, (*pair, evidence) in scores.items()
        ]
        + [make_outcome(constant, "undefined", statistic="spearman")]
        for side in (0, 1)
    )
    base = write("base", first, fine="00", hash="01", unhashed="02")
    other = write("other", second, fine="00", hash="99")
    compared = {one.dataset: one for one in compare(base, other)}
    reasons = {dataset: one.reason for dataset, one in compared.items()}
    assert reasons == {
        "fine": "",
        "hash": "the files of hash, or the examples that were excluded, differ",
        "unhashed": "the files of unhashed, or the examples that were excluded, differ",
        "runs": "1 and 2 runs",
        "examples": "400 and 1,399 test examples",
        "statistic": "it is not the same statistic",
        "truth": "the test examples are not the same",
        "gold": "the test examples are not the same",
        "undefined": "a value is undefined",
        "lost": f"only {base} has it",
        "new": f"only {other} has it",
    }
    assert list(reasons)[-1] == "new"
    assert compared["fine"].p == compared["fine"].corrected
    for dataset in set(reasons) - {"fine"}:
        assert compared[dataset].verdict == "not comparable"
        assert compared[dataset].p is None
    assert compared["lost"].second is None
    assert compared["new"].first is None
    content = json.loads(json.dumps(comparison_json(list(compared.values())), allow_nan=False))
    assert [one["dataset"] for one in content] == list(compared)
    assert content[0]["difference"] == compared["fine"].difference
    assert next(one["first"] for one in content if one["dataset"] == "undefined") is None
    text = comparison_text(list(compared.values()))
    assert "better than" in text.splitlines()[0]
    assert "0 of 1 metrics" in text.splitlines()[0]
    assert text.count("\n- intents, ") == 10
    assert "- intents, hash, 1-shot, accuracy: the files of hash, or the examples that were excluded, differ\n" in text


def test_several_models_are_compared_with_the_first(write: Write) -> None:
    first = write("first", [make_outcome(flips(0.5, 1), "a"), make_outcome(flips(0.5, 2), "b")])
    better = write("better", [make_outcome(flips(0.9, 3), "a"), make_outcome(flips(0.9, 4), "b")])
    mixed = write("mixed", [make_outcome(flips(0.1, 5), "a"), make_outcome(flips(0.5, 6), "b")])
    compared = compare(first, better, mixed)
    assert [(one.other, one.dataset) for one in compared] == [
        (str(other), name) for other in (better, mixed) for name in ("a", "b", "mean of a, b")
    ]
    assert [one.verdict for one in compared] == ["better"] * 3 + ["worse", "no clear difference", "worse"]
    assert compared[0].corrected == pytest.approx(compared[0].p * 6)
    lines = comparison_text(compared).splitlines()
    base, above, both = (escape_markdown(folder) for folder in (first, better, mixed))
    correction = "corrected for 6 comparisons by Holm."
    assert (
        lines[0]
        == f"{above} is better than {base} in 3 of 3 metrics, worse in 0, no clear difference in 0; {correction}"
    )
    assert (
        lines[2]
        == f"{both} is better than {base} in 0 of 3 metrics, worse in 2, no clear difference in 1; {correction}"
    )
    assert sum(line.startswith("| intents | ") for line in lines) == 6
    assert sum("**better** |" in line for line in lines) == 3


def test_all_pairs_are_compared_on_request(write: Write) -> None:
    folders = [write(name, [make_outcome(flips(chance, 1))]) for name, chance in (("a", 0.3), ("b", 0.5), ("c", 0.9))]
    compared = compare(*folders, all_pairs=True)
    names = [(Path(one.base).name, Path(one.other).name) for one in compared]
    assert names == [("a", "b"), ("a", "c"), ("b", "c")]
    assert {one.verdict for one in compared} == {"better"}
    assert [one.corrected for one in compared] == holm([one.p for one in compared if one.p is not None])
    text = comparison_text(compared)
    assert text.count("corrected for 3 comparisons by Holm.") == 3
    for base, other in (("a", "b"), ("a", "c"), ("b", "c")):
        first, second = (escape_markdown(folders["abc".index(name)]) for name in (base, other))
        assert f"## {second} compared with {first}\n" in text


def test_means_are_over_the_metrics_that_both_have(write: Write) -> None:
    first, second = ([flips(chance, seed) for seed in range(3)] for chance in (0.5, 0.55))
    base = write("base", [make_outcome(first[0], "x"), make_outcome(first[1], "y"), make_outcome(first[2], "z")])
    other = write("other", [make_outcome(second[0], "x"), make_outcome(second[1], "y")])
    mean = compare(base, other)[-1]
    assert (mean.task, mean.dataset, mean.setting, mean.metric) == ("intents", "mean of x, y", "1-shot", "accuracy")
    assert mean.first == pytest.approx(50 * (first[0].mean() + first[1].mean()))
    assert mean.second == pytest.approx(50 * (second[0].mean() + second[1].mean()))
    seeds = [crc32(name.encode()) for name in "xy"]
    samples = [
        np.mean(
            [
                bootstrap_outcomes([make_outcome(evidence)], seed=seed)[0]
                for evidence, seed in zip(model, seeds, strict=False)
            ],
            axis=0,
        )
        for model in (first, second)
    ]
    differences = samples[1] - samples[0]
    assert (mean.low, mean.high) == pytest.approx(tuple(np.percentile(differences, [2.5, 97.5])))
    below = sum(difference <= 0 for difference in differences)
    assert mean.p == pytest.approx(min(1, 2 * (below + 1) / (BOOTSTRAP_SAMPLES + 1)))


def test_suites_have_their_own_means(write: Write) -> None:
    def outcomes(chance: float) -> list[Outcome]:
        settings = [f"{shots}-shot prototypes" for shots in (1, 5)]
        return [
            Outcome("intents", name, setting, "accuracy", flips(chance, 7 * len(name) + len(setting)))
            for name in ("snips", "hwu64")
            for setting in settings
        ]

    *single, mean = compare(write("base", outcomes(0.4), suite="dse"), write("other", outcomes(0.7), suite="dse"))
    assert len(single) == 4
    assert (mean.dataset, mean.setting) == ("mean of snips, hwu64", "1-shot prototypes and 5-shot prototypes")
    assert mean.difference == pytest.approx(np.mean([one.difference for one in single]))
    assert mean.verdict == "better"


def test_nothing_in_common(write: Write) -> None:
    compared = compare(
        write("base", [make_outcome(flips(0.5, 1), "a")]), write("other", [make_outcome(flips(0.5, 1), "b")])
    )
    assert comparison_text(compared).startswith("None of the metrics of")


def test_folders_without_results_are_refused(write: Write, tmp_path: Path) -> None:
    good = write("good", [make_outcome(flips(0.5, 1))])
    for folders in ((tmp_path / "none", good), (good, tmp_path / "none")):
        with pytest.raises(TurnwiseError, match="none"):
            compare(*folders)
    with pytest.raises(TurnwiseError, match="two folders"):
        compare(good)
    (good / "outcomes.parquet").unlink()
    with pytest.raises(TurnwiseError, match=r"outcomes\.parquet does not exist"):
        compare(good, good)
