"""TaDSE: its losses equal a direct NumPy implementation; batches; and what is saved with the model."""

import json
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from tests.helpers.tiny import corpus as tiny_corpus
from tests.helpers.tiny import folder, recipe, set_up_run
from turnwise import Dialogue, Encoder, Turn, train
from turnwise.core.dialogue import USER, Slot
from turnwise.core.errors import CorpusError, TurnwiseError
from turnwise.corpus.slots.templates import SLOT, template_text
from turnwise.corpus.storage.corpus import Corpus, read_corpus
from turnwise.corpus.storage.writing import StoreWriter
from turnwise.models.backbone.stream import PoolerLayer
from turnwise.models.compression import Compression
from turnwise.objectives.tadse import TaDSE
from turnwise.training.disk_cache import TrainingCorpus
from turnwise.training.tokens import tokenise_corpus

Array = npt.NDArray[np.float64]


# ---- the equations


def unit(vector: Array) -> Array:
    return vector / np.sqrt((vector**2).sum())


def contrast(anchors: Array, candidates: Array, temperature: float, masked: npt.NDArray[np.bool_]) -> float:
    """Compute the mean over i of −log(exp(cos(aᵢ, cᵢ)/τ) / Σ_j exp(cos(aᵢ, c_j)/τ)), without masked j ≠ i."""
    losses = []
    for i, anchor in enumerate(anchors):
        terms = [np.exp(unit(anchor) @ unit(candidate) / temperature) for candidate in candidates]
        losses.append(-np.log(terms[i] / sum(term for j, term in enumerate(terms) if j == i or not masked[i, j])))
    return float(np.mean(losses))


def expected_loss(
    objective: TaDSE, views: Array, texts: list[int], templates: list[int], layer: tuple[Array, Array] | None
) -> float:
    """Compute Eqs. 1 to 4 from the four views u, u⁺, t, t⁺."""
    first, second, *pair = views
    if layer is not None:
        pair = [np.tanh(view @ layer[0].T + layer[1]) for view in pair]
    same_text = np.equal.outer(texts, texts) & objective.mask_equal
    same_template = np.equal.outer(templates, templates) & objective.mask_equal
    template_temperature = objective.template_temperature or objective.temperature
    pair_temperature = objective.pair_temperature or objective.temperature
    found_utterance = contrast(pair[0], first, pair_temperature, same_template)
    found_template = contrast(first, pair[0], pair_temperature, same_template)
    by_pair = {
        "utterances": found_utterance,
        "templates": found_template,
        "balanced": (found_utterance + found_template) / 2,
    }[objective.negatives]
    return (
        objective.template_weight * contrast(pair[0], pair[1], template_temperature, same_template)
        + objective.utterance_weight * contrast(first, second, objective.temperature, same_text)
        + objective.pair_weight * by_pair
    )


@pytest.mark.parametrize("negatives", ["utterances", "templates", "balanced"])
@pytest.mark.parametrize("mask_equal", [False, True])
@pytest.mark.parametrize("template_layer", [False, True])
def test_loss_and_gradients_equal_a_direct_implementation(
    negatives: str, mask_equal: bool, template_layer: bool
) -> None:
    random = np.random.default_rng(7)
    views = random.normal(size=(4, 5, 3))
    texts, templates = [1, 2, 3, 4, 1], [1, 2, 2, 3, 1]
    objective = TaDSE(0.3, 0.2, 0.4, 0.7, 1.3, 0.5, negatives, template_layer, mask_equal)  # type: ignore[arg-type]
    heads = objective.make_heads(3).double()
    layer = None
    if isinstance(heads, PoolerLayer):
        layer = (heads.linear.weight.detach().numpy(), heads.linear.bias.detach().numpy())
    given_views = torch.from_numpy(views).requires_grad_()
    inputs = {"utterances": torch.tensor(texts), "templates": torch.tensor(templates)}
    loss, metrics = objective.loss(given_views, inputs, heads)
    assert float(loss.detach()) == pytest.approx(expected_loss(objective, views, texts, templates, layer), rel=1e-10)
    assert metrics["equal_templates"] == 4  # each of two pairs, seen from both sides
    loss.backward()
    assert given_views.grad is not None
    if isinstance(heads, PoolerLayer):
        assert layer is not None
        for number, parameter in enumerate((heads.linear.weight, heads.linear.bias)):
            for place in np.ndindex(parameter.shape):
                losses = []
                for sign in (1, -1):
                    moved = [array.copy() for array in layer]
                    moved[number][place] += sign * 1e-6
                    losses.append(expected_loss(objective, views, texts, templates, (moved[0], moved[1])))
                assert parameter.grad is not None
                assert float(parameter.grad[place]) == pytest.approx((losses[0] - losses[1]) / 2e-6, abs=1e-7)
    step = 1e-6
    for place in np.ndindex(views.shape):
        higher, lower = views.copy(), views.copy()
        higher[place] += step
        lower[place] -= step
        slope = (
            expected_loss(objective, higher, texts, templates, layer)
            - expected_loss(objective, lower, texts, templates, layer)
        ) / (2 * step)
        assert float(given_views.grad[place]) == pytest.approx(slope, abs=1e-7)


@given(
    st.tuples(*[st.sampled_from([0.0, 0.5, 1.0])] * 3).filter(any),
    st.sampled_from(["utterances", "templates", "balanced"]),
    st.integers(2, 5),
    st.integers(0, 2**31),
)
def test_unused_views_are_not_encoded(
    weights: tuple[float, float, float], negatives: str, rows: int, seed: int
) -> None:
    """The loss of the used views is the loss of all four."""
    random = np.random.default_rng(seed)
    views = random.normal(size=(4, rows, 6))
    objective = TaDSE(
        utterance_weight=weights[0], template_weight=weights[1], pair_weight=weights[2], negatives=negatives
    )  # type: ignore[arg-type]
    chosen = []
    for view, weight in (("utterance", weights[0]), ("template", weights[1])):
        count = 2 if weight else 1 if weights[2] else 0
        chosen += [{"utterance": 0, "template": 2}[view] + number for number in range(count)]
    assert len(objective._views) == len(chosen)
    identities = torch.arange(rows)
    loss, _ = objective.loss(
        torch.from_numpy(views[chosen]), {"utterances": identities, "templates": identities}, nn.Identity()
    )
    assert float(loss.detach()) == pytest.approx(
        expected_loss(objective, views, list(range(rows)), list(range(rows)), None)
    )


# ---- batches


def user_turn(text: str, **values: str) -> Turn:
    """Return a user turn with slots at the given values."""
    slots = tuple(
        Slot(name, value, text.index(value), text.index(value) + len(value)) for name, value in values.items()
    )
    return Turn(USER, text, slots=slots)


TURNS = (
    user_turn("wake me at seven", time="seven"),
    user_turn("wake me at nine", time="nine"),
    user_turn("play jazz in the hall", style="jazz", room="hall"),
    user_turn("what can you do"),
    user_turn("Wake me at seven", time="seven"),
)


def store_of(turns: tuple[Turn, ...], place: Path) -> Corpus:
    with StoreWriter(place) as writer:
        for number, turn in enumerate(turns):
            writer.write(Dialogue(str(number), (turn,)))
        writer.commit({})
    return read_corpus(place)


def test_a_batch_has_utterances_and_templates_twice(tmp_path: Path) -> None:
    run_recipe = recipe("tadse", "batch_size=9")
    run = set_up_run(run_recipe, store_of(TURNS, tmp_path / "store"), tmp_path / "cache")
    (loader,) = run.loaders
    prepared = loader.prepare(0)
    rows = loader.rows(0).tolist()
    assert sorted(rows) == [0, 1, 2, 3]  # the last one says what the first says
    texts = [TURNS[row].text for row in rows]
    templates = [template_text(TURNS[row]) or TURNS[row].text for row in rows]
    expected = run.encoder.tokenise([*texts, *texts, *templates, *templates], run_recipe.max_length)
    assert [sequence.tolist() for sequence in prepared.sequences] == [sequence.tolist() for sequence in expected]
    vocabulary = run.encoder.backbone.tokenizer.get_added_vocab()
    slot = prepared.sequences[2 * len(rows) + rows.index(0)].tolist()
    assert slot[-2] == vocabulary[SLOT]
    same = np.equal.outer(prepared.inputs["templates"], prepared.inputs["templates"])
    assert same[rows.index(0), rows.index(1)] and same.sum() == len(rows) + 2


def test_turns_with_too_few_slots_are_not_used() -> None:
    dialogue = Dialogue("1", TURNS)
    for least in range(4):
        actual = [first for ((first, _),), _ in TaDSE(min_slots=least).examples(dialogue)]
        assert actual == [number for number, turn in enumerate(TURNS) if len(turn.slots) >= least]


def test_a_corpus_without_slots_is_rejected(tmp_path: Path) -> None:
    corpus = store_of((user_turn("what can you do"), user_turn("who are you")), tmp_path / "store")
    with pytest.raises(TurnwiseError, match=r"no turn of this corpus has a slot.*corpus detect"):
        train(recipe("tadse"), corpus, tmp_path / "out")
    with pytest.raises(TurnwiseError, match="no turn"):  # nor does what the first try left make it pass
        train(recipe("tadse"), corpus, tmp_path / "other", cache=tmp_path / "out" / "tokens")


def test_a_test_split_is_not_used_by_default(tmp_path: Path) -> None:
    """Templates of test utterances would leak their annotated slots."""
    with StoreWriter(tmp_path / "store") as writer:
        for number, turn in enumerate(TURNS):
            writer.write(Dialogue(str(number), (turn,), split="test" if number == 2 else "train"))
        writer.commit({})
    with pytest.raises(CorpusError, match=r"the split test.*--split train"):
        train(recipe("tadse"), read_corpus(tmp_path / "store"), tmp_path / "all")
    train(recipe("tadse", "steps=1"), read_corpus(tmp_path / "store", splits=["train"]), tmp_path / "model")
    compression = Compression.load(tmp_path / "model" / "compression")
    assert set(compression.templates) == {"wake me at {SLOT}", "Wake me at {SLOT}", "what can you do"}
    train(
        recipe("simcse", "steps=1"), read_corpus(tmp_path / "store"), tmp_path / "other"
    )  # texts alone are another matter


def test_runs_with_and_without_templates_share_tokenised_texts(tmp_path: Path) -> None:
    tokenizer = Encoder.load(recipe("dse").backbone).backbone.tokenizer
    corpus = store_of(TURNS, tmp_path / "store")
    plain = tokenise_corpus(TrainingCorpus(corpus, tmp_path / "cache"), tokenizer)
    with_templates = tokenise_corpus(TrainingCorpus(corpus, tmp_path / "cache"), tokenizer, rewriter=template_text)
    assert len(list((tmp_path / "cache").glob("texts-*"))) == 1
    assert plain.tokens(3).tolist() == with_templates.tokens(3).tolist() == with_templates.rewritten(3)[0].tolist()


# ---- saved models


@pytest.mark.parametrize("layer", [False, True])
def test_a_model_is_saved_with_its_templates_and_their_layer(tmp_path: Path, layer: bool) -> None:
    run_recipe = recipe("tadse", f"template_layer={layer}".lower(), "min_slots=1")
    trained = train(run_recipe, tiny_corpus(), tmp_path / "model", cache=folder() / "cache")
    compression = Compression.load(tmp_path / "model" / "compression")
    turns = [turn for dialogue in tiny_corpus() for turn in dialogue.turns if turn.slots]
    assert set(compression.templates) == {template_text(turn) for turn in turns}
    assert (compression.layer is not None) == layer
    plain = torch.from_numpy(trained.encode(list(compression.templates), normalise=False))
    with torch.inference_mode():
        behind = (
            plain
            if compression.layer is None
            else torch.tanh(plain @ compression.layer.linear.weight.T + compression.layer.linear.bias)
        )
    torch.testing.assert_close(compression.vectors, behind / behind.norm(dim=1, keepdim=True))
    if layer:
        moved = set_up_run(run_recipe).parts[0].heads
        assert not torch.equal(moved.linear.weight, compression.layer.linear.weight)  # type: ignore[union-attr]
    lines = [json.loads(line) for line in (tmp_path / "model" / "metrics.jsonl").read_text().splitlines()]
    step = next(line for line in lines if "loss" in line)
    parts = (step["tadse.utterance_loss"], step["tadse.template_loss"], step["tadse.pair_loss"])
    assert step["loss"] == pytest.approx(
        parts[0] + parts[1] + run_recipe.objectives["tadse"]["pair_weight"] * parts[2], rel=1e-5
    )


def test_resuming_a_finished_run_keeps_the_chosen_compression(tmp_path: Path) -> None:
    run_recipe = recipe("tadse", "steps=1")
    train(run_recipe, tiny_corpus(), tmp_path / "model", cache=folder() / "cache")
    place = tmp_path / "model" / "compression"
    chosen = Compression.load(place)
    chosen.set(template_weight=0.5, source="given")
    chosen.save(place)
    train(run_recipe, tiny_corpus(), tmp_path / "model", resume=True, cache=folder() / "cache")
    assert (Compression.load(place).template_weight, Compression.load(place).source) == (0.5, "given")
