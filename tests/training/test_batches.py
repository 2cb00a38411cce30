"""Which examples a step sees: one order that published figures depend on, and labels in turn where batches hold one label."""

import functools
import random
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.helpers.tiny import backbone, corpus, folder
from turnwise.models.encoder import Encoder
from turnwise.objectives.objective import Objective
from turnwise.objectives.registry import make_objective
from turnwise.training.batches import BatchLoader, LoaderConfig, prepare_ahead
from turnwise.training.disk_cache import TrainingCorpus
from turnwise.training.examples import ExampleTable, extract_examples
from turnwise.training.tokens import TokenTable, tokenise_corpus

SEED = 11


@functools.cache
def encoder() -> Encoder:
    return Encoder.load(backbone(), device="cpu")


@functools.cache
def texts() -> TokenTable:
    return tokenise_corpus(TrainingCorpus.of(corpus(), folder() / "cache"), encoder().backbone.tokenizer)


def feed(
    name: str,
    objective: Objective,
    examples: ExampleTable,
    batch_size: int,
    seed: int = SEED,
    buffer: int | None = None,
) -> BatchLoader:
    return BatchLoader(
        name, objective, examples, texts(), encoder().composer, LoaderConfig(batch_size, 24, 128, seed, buffer)
    )


def real(name: str, batch_size: int, seed: int = SEED, buffer: int | None = None) -> BatchLoader:
    """The feed of an objective over the tiny corpus."""
    objective = make_objective(name, {})
    examples = extract_examples(TrainingCorpus.of(corpus(), folder() / "cache"), texts(), {name: objective})[name]
    return feed(name, objective, examples, batch_size, seed, buffer)


def labelled(labels: list[int], batch_size: int, name: str = "wmdc", seed: int = SEED) -> BatchLoader:
    """A feed over examples of which only the labels matter."""
    with TemporaryDirectory() as place:
        np.save(Path(place) / "made.windows.npy", np.zeros((len(labels), 2, 2), np.int32))
        np.save(Path(place) / "made.labels.npy", np.array(labels, np.int8))
        options = {"windows": sorted(set(labels))} if name == "wmdc" else {}
        return feed(name, make_objective(name, options), ExampleTable(Path(place), "made", 2), batch_size, seed)


def batches(examples: int, batch_size: int) -> int:
    """Batches of a pass, said in words: a rest of one example, which has no negatives, is left out, unless it is all there is."""
    sizes = [min(batch_size, examples - start) for start in range(0, examples, batch_size)]
    return len(sizes) - (sizes[-1] == 1 and len(sizes) > 1)


#: Every label twice at the least: a batch of one has no negatives.
LABELS = st.lists(st.sampled_from([1, 2, 3, 7]), min_size=1, max_size=30).map(lambda labels: labels + labels)
SIZES = st.integers(2, 9)


@settings(deadline=None)
@given(LABELS, SIZES, st.sampled_from(["dse", "simcse"]), st.integers(0, 2**32), st.integers(0, 40))
def test_the_order_without_labels_is_the_published_one(
    labels: list[int], size: int, name: str, seed: int, step: int
) -> None:
    """Another order would be other figures than those in the documentation."""
    total = len(labels)
    found = labelled(labels, size, name, seed)
    assert found.steps_per_epoch == batches(total, size)
    epoch, place = divmod(step, batches(total, size))
    order = np.random.default_rng([seed, *name.encode(), epoch, 0]).permutation(total)
    assert found.rows(step).tolist() == order[place * size : (place + 1) * size].tolist()


@pytest.mark.parametrize("name", ["dse", "simcse", "masked-language", "siamese"])
def test_the_order_of_a_corpus_examples_is_the_published_one(name: str) -> None:
    found = real(name, 8)
    total = len(found.examples)
    epoch, place = divmod(100, found.steps_per_epoch)
    order = np.random.default_rng([SEED, *name.encode(), epoch, 0]).permutation(total)
    assert found.rows(100).tolist() == order[place * 8 : place * 8 + 8].tolist()


@settings(deadline=None)
@given(LABELS, SIZES)
def test_labels_take_turns_and_each_passes_over_its_own_examples(labels: list[int], size: int) -> None:
    found = labelled(labels, size)
    groups = {label: np.flatnonzero(np.array(labels) == label).tolist() for label in sorted(set(labels))}
    passes = {label: batches(len(rows), size) for label, rows in groups.items()}
    epoch = sum(passes.values())
    assert found.steps_per_epoch == epoch
    by_label: dict[int, list[list[int]]] = {label: [] for label in groups}
    steps = 2 * len(groups) * max(passes.values())  # every label has two passes at the least
    for step in range(steps):
        rows = found.rows(step).tolist()
        label = list(groups)[step % len(groups)]
        assert {labels[row] for row in rows} == {label}
        by_label[label].append(rows)
    for label, drawn in by_label.items():
        count = passes[label]
        for start in range(0, len(drawn) - count + 1, count):
            seen = [row for rows in drawn[start : start + count] for row in rows]
            assert len(seen) == len(set(seen))
            left_out = set(groups[label]) - set(seen)
            assert len(left_out) == (len(groups[label]) % size == 1 and len(groups[label]) > 1)


@settings(deadline=None)
@given(LABELS, SIZES)
def test_over_an_epoch_every_example_is_seen_about_once(labels: list[int], size: int) -> None:
    """A label with fewer examples begins its next pass while others are still in theirs.

    Exactly: of an epoch's steps every label has the same number of turns (or one more), and an example is seen once in each of its
    label's passes, the last of which the epoch may cut short. Where all labels have as many batches, that is once.
    """
    found = labelled(labels, size)
    counts = Counter(labels)
    names = sorted(counts)
    seen = Counter(row for step in range(found.steps_per_epoch) for row in found.rows(step).tolist())
    for place, label in enumerate(names):
        turns = (found.steps_per_epoch - place + len(names) - 1) // len(names)
        whole, begun = divmod(turns, batches(counts[label], size))
        rows = [row for row, given in enumerate(labels) if given == label]
        # a rest of one is left out of a pass, and another one the next time
        fewest = 0 if counts[label] % size == 1 and counts[label] > 1 else whole
        assert all(fewest <= seen[row] <= whole + bool(begun) for row in rows)
        if len({batches(count, size) for count in counts.values()}) == 1:
            assert (whole, begun) == (1, 0)


@settings(deadline=None, max_examples=50)
@given(LABELS, SIZES, st.lists(st.integers(0, 200), max_size=12), st.integers(0, 200), st.sampled_from(["wmdc", "dse"]))
def test_a_step_is_the_same_whichever_were_asked_before(
    labels: list[int], size: int, before: list[int], step: int, name: str
) -> None:
    fresh, used = labelled(labels, size, name), labelled(labels, size, name)
    for other in before:
        used.rows(other)
    assert used.rows(step).tolist() == fresh.rows(step).tolist()


def test_passes_seeds_and_names_draw_apart() -> None:
    labels = [1] * 40 + [2] * 40
    one = labelled(labels, 8)
    first, second = (np.concatenate([one.rows(start + step) for step in range(10)]) for start in (0, 10))
    assert sorted(first.tolist()) == sorted(second.tolist()) == list(range(80))
    assert first.tolist() != second.tolist()
    assert one.rows(0).tolist() != labelled(labels, 8, seed=SEED + 1).rows(0).tolist()
    assert labelled(labels, 8, "dse").rows(0).tolist() != labelled(labels, 8, "simcse").rows(0).tolist()
    # two labels of as many examples are not shuffled alike
    assert one.rows(0).tolist() != (one.rows(1) - 40).tolist()


@pytest.mark.parametrize("workers", [1, 4])
def test_threads_prepare_what_the_step_asks_for(workers: int) -> None:
    """From any step on, whoever prepares: WMDC's sizes in turn, with the sequences of a feed that nobody else asks."""
    feeds = [real("wmdc", 6), real("dse", 5)]
    given = list(prepare_ahead(feeds, 5, 17, workers))
    assert [int(prepared[0].inputs["size"]) for prepared in given] == [(3, 1, 2)[turn % 3] for turn in range(12)]
    fresh = [real("wmdc", 6), real("dse", 5)]
    steps = list(range(5, 17))
    random.Random(workers).shuffle(steps)
    for step in steps:
        for found, alone in zip(given[step - 5], fresh, strict=True):
            again = alone.prepare(step)
            assert [tokens.tolist() for tokens in found.sequences] == [tokens.tolist() for tokens in again.sequences]
            assert all(np.array_equal(found.inputs[name], again.inputs[name]) for name in again.inputs)


@pytest.mark.parametrize("name", ["wmdc", "dse"])
def test_with_a_buffer_a_pass_still_sees_everything_once_and_begins_anywhere(name: str) -> None:
    """Labels in turn or none, batches that lie in two buffers; each is what a feed gives that begins there."""
    found, whole = real(name, 10, buffer=64), real(name, 10)
    assert found.steps_per_epoch == whole.steps_per_epoch
    groups = len(found.samplers)
    for group, order in enumerate(found.samplers):
        assert len(order) > 128  # more than one buffer
        steps = [group + groups * turn for turn in range(batches(len(order), 10))]
        seen, every = (np.concatenate([each.rows(step) for step in steps]).tolist() for each in (found, whole))
        assert len(set(seen)) == len(seen) == len(every)
        # a rest of one is left out
        assert len(set(seen) ^ set(every)) <= 2 * (len(order) % 10 == 1)
        assert seen != every
    for step in (7, 31, 100):
        fresh = real(name, 10, buffer=64)
        assert fresh.rows(step).tolist() == found.rows(step).tolist()
        again, given = fresh.prepare(step), found.prepare(step)
        assert [tokens.tolist() for tokens in again.sequences] == [tokens.tolist() for tokens in given.sequences]
