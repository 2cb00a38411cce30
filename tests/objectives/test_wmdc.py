"""WMDC's windows, batches, heads and frequencies equal direct implementations on random dialogues."""

from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.helpers.families import save
from tests.helpers.strategies import dialogues
from tests.helpers.tiny import backbone, recipe, set_up_run
from tests.helpers.tiny import corpus as tiny_corpus
from turnwise import Dialogue, Encoder, Turn, train
from turnwise.core.errors import TurnwiseError
from turnwise.corpus.storage.corpus import Corpus, read_corpus
from turnwise.corpus.storage.writing import StoreWriter
from turnwise.objectives.losses import inverse_response_frequency, symmetric_nt_xent
from turnwise.objectives.objective import Batch
from turnwise.objectives.wmdc import WMDC
from turnwise.training.batches import BatchLoader, LoaderConfig
from turnwise.training.disk_cache import TrainingCorpus
from turnwise.training.examples import extract_examples
from turnwise.training.setup import TrainingSetup
from turnwise.training.tokens import tokenise_corpus

WINDOWS = st.lists(st.integers(1, 5), min_size=1, max_size=4, unique=True).map(tuple)


def store(dialogues_: list[Dialogue], folder: Path) -> Corpus:
    with StoreWriter(folder) as writer:
        for number, dialogue in enumerate(dialogues_):
            writer.write(Dialogue(str(number), dialogue.turns))
        writer.commit({})
    return read_corpus(folder)


@settings(deadline=None)
@given(dialogues(), WINDOWS)
def test_every_response_is_used_once_for_every_size(dialogue: Dialogue, windows: tuple[int, ...]) -> None:
    actual = Counter(WMDC(windows=windows).examples(dialogue))
    expected = Counter(
        (((response - size, response), (response, response + 1)), size)
        for size in windows
        for response in range(size, len(dialogue.turns))
    )
    assert actual == expected


@settings(deadline=None, max_examples=25)
@given(st.lists(dialogues(), min_size=2, max_size=5), WINDOWS)
def test_windows_stay_within_dialogues_and_batches_have_one_size(
    dialogues_: list[Dialogue], windows: tuple[int, ...]
) -> None:
    """Check the windows, the sizes of batches in turn, and that all examples are used."""
    lengths = [len(dialogue.turns) for dialogue in dialogues_]
    belongs = [number for number, length in enumerate(lengths) for _ in range(length)]
    objective = WMDC(windows=windows)
    actual = {size: sum(max(0, length - size) for length in lengths) for size in windows}
    if sum(actual.values()) < 2:
        return
    with TemporaryDirectory() as folder:
        corpus = store(dialogues_, Path(folder) / "store")
        encoder = Encoder.load(backbone())
        texts = tokenise_corpus(TrainingCorpus(corpus, Path(folder)), encoder.backbone.tokenizer)
        examples = extract_examples(TrainingCorpus(corpus, Path(folder)), texts, {"wmdc": objective})["wmdc"]
        if min(actual.values()) < 2:
            with pytest.raises(TurnwiseError, match=r"[01] examples of size"):
                BatchLoader("wmdc", objective, examples, texts, encoder.composer, LoaderConfig(3, 24, 128, 1))
            return
        loader = BatchLoader("wmdc", objective, examples, texts, encoder.composer, LoaderConfig(3, 24, 128, 1))
        present = list(windows)
        batches = {size: -(-actual[size] // 3) for size in present}
        seen: dict[int, list[tuple[int, ...]]] = {size: [] for size in present}
        for step in range(len(present) * max(batches.values())):
            rows, sizes = examples.rows(loader.rows(step))
            assert set(sizes.tolist()) == {present[step % len(present)]}
            for (context, response), size in zip(rows.tolist(), sizes.tolist(), strict=True):
                assert context[1] == response[0] == response[1] - 1
                assert context[1] - context[0] == size
                assert belongs[context[0]] == belongs[response[0]]
                seen[size].append(tuple(context))
        for size in present:
            every = {
                (start + response - size, start + response)
                for start, length in zip(np.cumsum([0, *lengths]).tolist(), lengths, strict=False)
                for response in range(size, length)
            }
            # a last batch of one has no negatives and is left out
            assert len(every - set(seen[size])) <= 1


@settings(deadline=None, max_examples=25)
@given(st.lists(dialogues(), min_size=1, max_size=4))
def test_frequencies_count_responses_of_the_whole_corpus(dialogues_: list[Dialogue]) -> None:
    counted = Counter(turn.text.strip().lower() for dialogue in dialogues_ for turn in dialogue.turns[1:])
    with TemporaryDirectory() as folder:
        corpus = store(dialogues_, Path(folder) / "store")
        texts = tokenise_corpus(TrainingCorpus(corpus, Path(folder)), Encoder.load(backbone()).backbone.tokenizer)
        turns = [turn for dialogue in dialogues_ for turn in dialogue.turns]
        assert [int(texts.frequencies[number]) for number in range(len(turns))] == [
            counted[turn.text.strip().lower()] for turn in turns
        ]


def test_frequencies_ignore_case_and_space_but_not_full_stops(tmp_path: Path) -> None:
    texts_ = ("Yes.", "yes. ", "yes", "YES.", "hello", "hello")
    corpus = store([Dialogue("d", tuple(Turn("user", text) for text in texts_))], tmp_path / "store")
    texts = tokenise_corpus(TrainingCorpus(corpus, tmp_path), Encoder.load(backbone()).backbone.tokenizer)
    # the first turn answers nothing, so it is not counted, but its text is an answer elsewhere
    assert [int(texts.frequencies[number]) for number in range(6)] == [2, 2, 1, 2, 2, 2]


def batch(windows: tuple[int, ...], step: int) -> tuple[WMDC, TrainingSetup, Batch]:
    setup = set_up_run(recipe("wmdc", f"windows={list(windows)}", "mask_equal=false", dropout=0.0))
    objective = setup.parts[0].objective
    assert isinstance(objective, WMDC)
    return objective, setup, setup.loaders[0].batch(step)


@pytest.mark.parametrize("step", [0, 1, 2])
def test_the_newest_turn_is_last(step: int) -> None:
    _, run, batch_ = batch((1, 2, 3), step)
    separator = run.encoder.composer.separator.tolist()
    texts = run.loaders[0].texts
    for sequence, (first, last) in zip(batch_.column(0), batch_.windows[:, 0].tolist(), strict=True):
        assert last - first == step + 1
        joined: list[int] = []
        for turn in range(first, last):
            joined += [*(separator if joined else []), *texts.tokens(turn).tolist()]
        body = sequence.tolist()[len(run.encoder.composer.prefix) : -len(run.encoder.composer.suffix)]
        assert joined[-len(body) :] == body


@pytest.mark.parametrize("step", [0, 1, 2])
def test_the_loss_uses_the_head_of_its_size(step: int) -> None:
    objective, run, batch_ = batch((1, 2, 3), step)
    heads = run.parts[0].heads
    prepared = objective.prepare(batch_)
    inputs = {name: torch.as_tensor(value) for name, value in prepared.inputs.items()}
    vectors = torch.randn(2, len(batch_), run.encoder.hidden)
    loss, metrics = objective.loss(vectors, inputs, heads)
    loss.backward()
    assert {name for name, value in heads.named_parameters() if value.grad is not None} == {f"{step + 1}.weight"}
    weight = dict(heads.named_parameters())[f"{step + 1}.weight"]
    counted = Counter(turn.text.strip().lower() for dialogue in tiny_corpus() for turn in dialogue.turns[1:])
    texts_ = [turn.text.strip().lower() for dialogue in tiny_corpus() for turn in dialogue.turns]
    counts = torch.tensor([counted[texts_[response]] for response in batch_.windows[:, 1, 0].tolist()])
    expected = symmetric_nt_xent(
        vectors[0] @ weight.T, vectors[1] @ weight.T, 0.05, weights=inverse_response_frequency(counts)
    )
    assert loss.item() == pytest.approx(expected.item(), rel=1e-5)
    assert metrics["window"] == step + 1
    assert metrics["weight"] == pytest.approx(float(inverse_response_frequency(counts).mean()), rel=1e-6)


def test_heads_are_those_of_the_paper() -> None:
    heads = WMDC(windows=(2, 5)).make_heads(16)
    assert {name: tuple(value.shape) for name, value in heads.named_parameters()} == {
        "2.weight": (16, 16),
        "5.weight": (16, 16),
    }
    same = WMDC(windows=(2,), heads_start="identity").make_heads(16)
    assert torch.equal(next(same.parameters()), torch.eye(16))


def test_masked_equal_contexts_or_responses_are_no_negatives() -> None:
    objective = WMDC(windows=(1,), mask_equal=True, reweight=False)
    heads = objective.make_heads(8)
    vectors = torch.randn(2, 4, 8)
    inputs = {
        "identities": torch.tensor(
            [[1, 2, 3, 1], [5, 6, 6, 8]]
        ),  # the 1st and 4th share a context, the 2nd and 3rd an answer
        "frequencies": torch.ones(4),
        "size": torch.tensor(1),
    }
    same = torch.zeros(4, 4, dtype=torch.bool)
    for one, other in ((0, 3), (1, 2)):
        same[one, other] = same[other, one] = True
    projected = heads["1"](vectors)  # type: ignore[index]
    expected = symmetric_nt_xent(projected[0], projected[1], 0.05, same=same)
    actual, metrics = objective.loss(vectors, inputs, heads)
    assert actual.item() == pytest.approx(expected.item(), rel=1e-6)
    assert metrics["equal_texts"] == 2
    assert "weight" not in metrics


@pytest.mark.parametrize("family", ["bert", "roberta", "t5"])
def test_training_with_the_papers_model_families(family: str, tmp_path: Path) -> None:
    start = tmp_path / "start"
    save(family, start)
    encoder = train(recipe("wmdc", f"backbone={start}", "steps=3"), tiny_corpus(), tmp_path / "model")
    before = Encoder.load(start).encode(["hello", ["where is it?", "in the north"]])
    after = encoder.encode(["hello", ["where is it?", "in the north"]])
    assert np.isfinite(after).all()
    assert not np.allclose(before, after)
    assert not any(name.startswith("heads") for name in encoder.state_dict())
