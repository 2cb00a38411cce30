"""The examples of each step: one fixed order, and labels that take turns."""

import functools
import random
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.helpers.tiny import backbone, corpus, folder
from turnwise.models.encoder import Encoder
from turnwise.objectives.objective import Objective, TurnTable
from turnwise.objectives.registry import make_objective
from turnwise.training.batches import BatchLoader, LoaderConfig, prepare_ahead
from turnwise.training.disk_cache import TrainingCorpus
from turnwise.training.examples import ExampleTable, extract_examples
from turnwise.training.tokens import tokenise_corpus

SEED = 11


@functools.cache
def encoder() -> Encoder:
    return Encoder.load(backbone(), device="cpu")


@functools.cache
def texts() -> TurnTable:
    return tokenise_corpus(TrainingCorpus(corpus(), folder() / "cache"), encoder().backbone.tokenizer)


def make_loader(
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
    """Return the loader of an objective over the tiny corpus."""
    objective = make_objective(name, {})
    examples = extract_examples(TrainingCorpus(corpus(), folder() / "cache"), texts(), {name: objective})[name]
    return make_loader(name, objective, examples, batch_size, seed, buffer)


def labelled(labels: list[int], batch_size: int, name: str = "wmdc", seed: int = SEED) -> BatchLoader:
    """Return a loader over examples of which only the labels matter."""
    options = {"windows": sorted(set(labels))} if name == "wmdc" else {}
    table = ExampleTable(np.zeros((len(labels), 2, 2), np.int32), np.array(labels, np.int8))
    return make_loader(name, make_objective(name, options), table, batch_size, seed)


def batches(examples: int, batch_size: int) -> int:
    """Count the batches of an epoch: a last batch of one example is dropped unless it is the only one."""
    sizes = [min(batch_size, examples - start) for start in range(0, examples, batch_size)]
    return len(sizes) - (sizes[-1] == 1 and len(sizes) > 1)


#: Every label twice at the least: a batch of one has no negatives.
LABELS = st.lists(st.sampled_from([1, 2, 3, 7]), min_size=1, max_size=30).map(lambda labels: labels + labels)
SIZES = st.integers(2, 9)


@settings(deadline=None)
@given(LABELS, SIZES, st.sampled_from(["dse", "simcse"]), st.integers(0, 2**32), st.integers(0, 40))
def test_order_without_labels_is_fixed(labels: list[int], size: int, name: str, seed: int, step: int) -> None:
    """Another order would change the results in the documentation."""
    total = len(labels)
    actual = labelled(labels, size, name, seed)
    assert actual.steps_per_epoch == batches(total, size)
    epoch, place = divmod(step, batches(total, size))
    order = np.random.default_rng([seed, *name.encode(), epoch, 0]).permutation(total)
    assert actual.rows(step).tolist() == order[place * size : (place + 1) * size].tolist()


@pytest.mark.parametrize("name", ["dse", "simcse", "masked-language", "siamese"])
def test_order_of_corpus_examples_is_fixed(name: str) -> None:
    actual = real(name, 8)
    total = len(actual.examples)
    epoch, place = divmod(100, actual.steps_per_epoch)
    order = np.random.default_rng([SEED, *name.encode(), epoch, 0]).permutation(total)
    assert actual.rows(100).tolist() == order[place * 8 : place * 8 + 8].tolist()


@settings(deadline=None)
@given(LABELS, SIZES)
def test_labels_take_turns_and_each_iterates_over_its_examples(labels: list[int], size: int) -> None:
    actual = labelled(labels, size)
    groups = {label: np.flatnonzero(np.array(labels) == label).tolist() for label in sorted(set(labels))}
    passes = {label: batches(len(rows), size) for label, rows in groups.items()}
    epoch = sum(passes.values())
    assert actual.steps_per_epoch == epoch
    by_label: dict[int, list[list[int]]] = {label: [] for label in groups}
    steps = 2 * len(groups) * max(passes.values())  # every label has two passes at the least
    for step in range(steps):
        rows = actual.rows(step).tolist()
        label = list(groups)[step % len(groups)]
        assert {labels[row] for row in rows} == {label}
        by_label[label].append(rows)
    for label, label_batches in by_label.items():
        count = passes[label]
        for start in range(0, len(label_batches) - count + 1, count):
            seen = [row for rows in label_batches[start : start + count] for row in rows]
            assert len(seen) == len(set(seen))
            left_out = set(groups[label]) - set(seen)
            assert len(left_out) == (len(groups[label]) % size == 1 and len(groups[label]) > 1)


@settings(deadline=None)
@given(LABELS, SIZES)
def test_every_example_is_used_about_once_per_epoch(labels: list[int], size: int) -> None:
    """A label with fewer examples starts its next pass while others are still in theirs.

    Exactly: of an epoch's steps every label has the same number of turns (or one more), and an example is seen once in
    each of its label's passes, the last of which the epoch may cut short. Where all labels have as many batches, that
    is once.
    """
    actual = labelled(labels, size)
    counts = Counter(labels)
    names = sorted(counts)
    seen = Counter(row for step in range(actual.steps_per_epoch) for row in actual.rows(step).tolist())
    for place, label in enumerate(names):
        turns = (actual.steps_per_epoch - place + len(names) - 1) // len(names)
        whole, begun = divmod(turns, batches(counts[label], size))
        rows = [row for row, batches_ahead in enumerate(labels) if batches_ahead == label]
        # a rest of one is left out of a pass, and another one the next time
        fewest = 0 if counts[label] % size == 1 and counts[label] > 1 else whole
        assert all(fewest <= seen[row] <= whole + bool(begun) for row in rows)
        if len({batches(count, size) for count in counts.values()}) == 1:
            assert (whole, begun) == (1, 0)


@given(LABELS, SIZES, st.lists(st.integers(0, 200), max_size=12), st.integers(0, 200), st.sampled_from(["wmdc", "dse"]))
def test_a_step_does_not_depend_on_steps_requested_before(
    labels: list[int], size: int, before: list[int], step: int, name: str
) -> None:
    fresh, used = labelled(labels, size, name), labelled(labels, size, name)
    for other in before:
        used.rows(other)
    assert used.rows(step).tolist() == fresh.rows(step).tolist()


def test_epochs_seeds_and_names_have_different_orders() -> None:
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
def test_threads_prepare_the_same_batches(workers: int) -> None:
    """From any step on, threads give the batches of a loader that is used by itself."""
    loaders = [real("wmdc", 6), real("dse", 5)]
    batches_ahead = list(prepare_ahead(loaders, 5, 17, workers))
    assert [int(prepared[0].inputs["size"]) for prepared in batches_ahead] == [
        (3, 1, 2)[turn % 3] for turn in range(12)
    ]
    fresh = [real("wmdc", 6), real("dse", 5)]
    steps = list(range(5, 17))
    random.Random(workers).shuffle(steps)
    for step in steps:
        for actual, alone in zip(batches_ahead[step - 5], fresh, strict=True):
            again = alone.prepare(step)
            assert [tokens.tolist() for tokens in actual.sequences] == [tokens.tolist() for tokens in again.sequences]
            assert all(np.array_equal(actual.inputs[name], again.inputs[name]) for name in again.inputs)


@pytest.mark.parametrize("name", ["wmdc", "dse"])
def test_a_buffer_uses_every_example_once_per_epoch_from_any_step(name: str) -> None:
    """With and without labels in turn, and for batches that span two buffers."""
    actual, whole = real(name, 10, buffer=64), real(name, 10)
    assert actual.steps_per_epoch == whole.steps_per_epoch
    groups = len(actual.samplers)
    for group, order in enumerate(actual.samplers):
        assert len(order) > 128  # more than one buffer
        steps = [group + groups * turn for turn in range(batches(len(order), 10))]
        seen, every = (np.concatenate([each.rows(step) for step in steps]).tolist() for each in (actual, whole))
        assert len(set(seen)) == len(seen) == len(every)
        # a rest of one is left out
        assert len(set(seen) ^ set(every)) <= 2 * (len(order) % 10 == 1)
        assert seen != every
    for step in (7, 31, 100):
        fresh = real(name, 10, buffer=64)
        assert fresh.rows(step).tolist() == actual.rows(step).tolist()
        again, batches_ahead = fresh.prepare(step), actual.prepare(step)
        assert [tokens.tolist() for tokens in again.sequences] == [
            tokens.tolist() for tokens in batches_ahead.sequences
        ]
