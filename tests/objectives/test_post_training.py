"""Domain post-training: pairs, masked tokens and losses equal direct implementations, and runs equal each other."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file
from scipy.special import erf, log_softmax, softmax
from torch import nn

from tests.helpers import job
from tests.helpers.job import Job
from tests.helpers.strategies import dialogues
from tests.helpers.tiny import backbone, corpus, expect_close, gradients, recipe, set_up_run, start_step
from tests.helpers.turns import turn_table
from turnwise import Dialogue, Encoder, Turn, train
from turnwise.core.dialogue import RIGHT_RESPONSE, WRONG_RESPONSE
from turnwise.core.errors import TurnwiseError
from turnwise.models.backbone.inputs import Composer
from turnwise.models.backbone.language_head import LanguageHead
from turnwise.models.backbone.ragged import Tokens
from turnwise.models.backbone.stream import TokenStream
from turnwise.objectives.masked_language import MaskedLanguage
from turnwise.objectives.objective import Batch, PreparedBatch, TokenStates, TurnTable
from turnwise.objectives.post_training import Generator, PostTraining, sample_tokens
from turnwise.training import passes
from turnwise.training.passes import TokenPass
from turnwise.training.recipe import Recipe, load_recipe

Array = npt.NDArray[np.float64]

CLS, SEP, MASK, EOT = 2, 3, 4, 5

#: A token is its turn + 1, times this, plus its position in the turn.
TURN = 1000


def token_dialogues(lengths: list[list[int]]) -> TurnTable:
    """Return dialogues of turns with given numbers of tokens, which encode their turn."""
    return turn_table(lengths, lambda turn, length: np.arange(length, dtype=np.int32) + TURN * (turn + 1))


def composer(vocabulary: int = 10**6) -> Composer:
    cls, sep = np.array([CLS], np.int32), np.array([SEP], np.int32)
    return Composer(
        cls, sep, sep, sep, {}, MASK, vocabulary, {"[CLS]": CLS, "[SEP]": SEP, "[MASK]": MASK, "[EOT]": EOT}
    )


def batch_of(
    objective: Any, dialogues_: Any, seed: int, windows: list[Any] | None = None, vocabulary: int = 10**6
) -> Batch:
    """Return a batch of all examples, or of given windows."""
    actual = windows or []
    if windows is None:
        for start, end in pairwise(dialogues_.dialogue_starts.tolist()):
            dialogue = Dialogue("d", (Turn("user", "a"),) * (end - start))
            actual += [np.array(example.windows) + start for example in objective.examples(dialogue)]
    rows = np.array(actual, np.int64)
    return Batch(
        rows, np.zeros(len(rows), np.int64), dialogues_, composer(vocabulary), 24, 128, np.random.default_rng(seed)
    )


def restored(prepared: PreparedBatch) -> list[list[int]]:
    """Return the sequences with their original tokens."""
    whole = [sequence.tolist() for sequence in prepared.sequences]
    for member, place, target in zip(
        *(prepared.inputs[name].tolist() for name in ("members", "positions", "targets")), strict=True
    ):
        whole[member][place] = target
    return whole


# ---- examples and pairs


@given(dialogues())
def test_a_dialogue_can_be_split_before_every_turn_but_the_first(dialogue: Dialogue) -> None:
    turns = len(dialogue.turns)
    places = [example.windows for example in PostTraining().examples(dialogue)]
    assert places == [((0, turns), (cut, cut + 1)) for cut in range(1, turns)]
    whole = [example.windows for example in PostTraining(unit="dialogue").examples(dialogue)]
    assert whole == ([((0, turns), (1, turns))] if turns > 1 else [])


@pytest.mark.parametrize(("intent", "count"), [(RIGHT_RESPONSE, 2), (WRONG_RESPONSE, 0), (None, 2)])
def test_dialogues_with_wrong_responses_are_not_used(intent: str | None, count: int) -> None:
    dialogue = Dialogue("d", (Turn("user", "a"), Turn("system", "b"), Turn("user", "c", intent)))
    assert len(list(PostTraining().examples(dialogue))) == count


TALKS = st.lists(st.lists(st.integers(1, 20), min_size=2, max_size=6), min_size=2, max_size=4).map(token_dialogues)


@given(
    TALKS,
    st.integers(0, 10**6),
    st.sampled_from([8, 30, 128, 512]),
    st.booleans(),
    st.booleans(),
    st.booleans(),
    st.booleans(),
)
def test_pairs_are_a_split_dialogue_or_end_in_another(
    dialogues_: TurnTable, seed: int, length: int, next_sentence: bool, ends: bool, detection: bool, every: bool
) -> None:
    """Decode the pairs from their tokens, and compare with both complete parts truncated."""
    objective = PostTraining(
        0.3,
        5,
        length,
        "place" if every else "dialogue",
        1.0 if next_sentence else 0.0,
        end_of_turn=ends,
        detection=detection,
    )
    batch = batch_of(objective, dialogues_, seed)
    prepared = objective.prepare(batch)
    assert prepared.segments is not None
    starts = dialogues_.dialogue_starts.tolist()
    belongs = np.repeat(np.arange(len(starts) - 1), np.diff(starts)).tolist()

    def joined(first: int, last: int) -> Tokens:
        pieces = [[*dialogues_.tokens(turn).tolist(), *([EOT] if ends else [])] for turn in range(first, last)]
        return np.array([token for piece in pieces for token in piece], np.int32)

    for number, (tokens, segments) in enumerate(zip(restored(prepared), prepared.segments, strict=True)):
        (first, last), (earliest, behind) = batch.windows[number].tolist()
        middle = tokens.index(SEP)
        start = tokens[middle + 1] // TURN - 1  # the second part begins with a turn's first token
        assert tokens[middle + 1] % TURN == 0
        if prepared.inputs["follows"][number]:
            cut, end = start, last
        else:
            assert next_sentence
            assert belongs[start] != belongs[first]
            cut, end = tokens[middle - 1 - ends] // TURN, starts[belongs[start] + 1]
        assert earliest <= cut < behind
        expected = batch.composer.pair(joined(first, cut), joined(start, end), min(length, 128))
        assert tokens == expected[0].tolist()
        assert segments.tolist() == expected[1].tolist()
        places = prepared.inputs["positions"][prepared.inputs["members"] == number]
        free = [place for place, token in enumerate(tokens) if token not in (CLS, SEP)]
        assert set(places) <= set(free)
        assert len(places) == len(set(places)) == min(max(1, round(0.3 * len(free))), 5, len(free))
        assert not detection or (prepared.sequences[number][places] == MASK).all()
    assert prepared.rows == len(batch)
    assert prepared.weights is not None
    assert prepared.weights.tolist() == [1] * len(batch)


def test_half_of_the_pairs_belong_together_and_splits_are_random() -> None:
    dialogues_ = token_dialogues([[5] * 4] * 300)
    objective = PostTraining(unit="dialogue")
    prepared = objective.prepare(batch_of(objective, dialogues_, 3))
    again = objective.prepare(batch_of(objective, dialogues_, 4))
    assert 0.4 < prepared.inputs["follows"].mean() < 0.6
    assert (prepared.inputs["follows"] != again.inputs["follows"]).any()
    cuts = [tokens.index(SEP) // 6 for tokens in restored(prepared)]
    assert min(cuts.count(cut) for cut in (1, 2, 3)) > 70


def test_chosen_tokens_are_masked_replaced_or_left() -> None:
    dialogues_ = token_dialogues([[60] * 2] * 200)
    objective = PostTraining(next_sentence_weight=0)
    prepared = objective.prepare(batch_of(objective, dialogues_, 5))
    inputs = prepared.inputs
    actual = np.array(
        [prepared.sequences[row][place] for row, place in zip(inputs["members"], inputs["positions"], strict=True)]
    )
    assert abs((actual == MASK).mean() - 0.8) < 0.02
    assert abs((actual == inputs["targets"]).mean() - 0.1) < 0.02


@pytest.mark.parametrize("most", [0, 3])
def test_masked_language_draws_in_a_fixed_order(most: int) -> None:
    """Another order of random numbers would change the results in the documentation."""
    dialogues_, objective = token_dialogues([[3, 20, 9], [14, 1]]), MaskedLanguage(0.2, most)
    batch = batch_of(objective, dialogues_, 8, [[[turn, turn + 1]] for turn in range(5)])
    prepared = objective.prepare(batch)
    random = np.random.default_rng(8)
    assert prepared.weights is not None
    for turn in range(5):
        plain = [CLS, *dialogues_.tokens(turn).tolist(), SEP]
        free = list(range(1, len(plain) - 1))
        count = min(max(1, round(len(free) * 0.2)), most or len(free))
        chosen = np.sort(random.choice(np.array(free), count, replace=False))
        chance, others = random.random(count), random.integers(10**6, size=count, dtype=np.int32)
        assert prepared.inputs["targets"][prepared.inputs["members"] == turn].tolist() == [
            plain[place] for place in chosen
        ]
        for place, draw, other in zip(chosen.tolist(), chance, others.tolist(), strict=True):
            plain[place] = MASK if draw < 0.8 else other if draw < 0.9 else plain[place]
        assert prepared.sequences[turn].tolist() == plain
        assert prepared.weights[turn] == count


# ---- losses


SIZE, VOCABULARY = 8, 40


@dataclass
class Step:
    """A prepared batch of five pairs, with random heads and embeddings."""

    objective: PostTraining
    prepared: PreparedBatch
    heads: nn.ModuleDict
    embeddings: nn.Embedding

    @classmethod
    def of(cls, kind: torch.dtype = torch.float64, **options: Any) -> "Step":
        objective = PostTraining(mask_fraction=0.3, length=30, **options)
        talks = turn_table(
            [[4, 7], [3, 9, 2], [5, 1, 6]],
            lambda turn, length: np.random.default_rng(turn).integers(6, VOCABULARY, length).astype(np.int32),
        )
        prepared = objective.prepare(batch_of(objective, talks, 2, vocabulary=VOCABULARY))
        torch.manual_seed(0)
        heads = objective.make_heads(SIZE)
        for head in heads.modules():
            if isinstance(head, LanguageHead):
                head.start(VOCABULARY, {}, 1e-5)
                head.bias.data.normal_(0, 0.1, generator=torch.Generator().manual_seed(1))
        heads = heads.to(kind)
        assert isinstance(heads, nn.ModuleDict)
        return cls(objective, prepared, heads, nn.Embedding(VOCABULARY, SIZE, dtype=kind))

    def stream(self, members: npt.NDArray[np.int64]) -> TokenStream:
        return TokenStream.of(self.prepared.sequences.take(members), self.prepared.segments.take(members))

    @property
    def everyone(self) -> npt.NDArray[np.int64]:
        return np.arange(len(self.prepared.sequences))


def by_sequence(states: torch.Tensor, stream: TokenStream) -> list[Array]:
    """Return the states of each sequence, in the given order."""
    pieces = np.split(states.detach().numpy(), np.cumsum(stream.lengths)[:-1])
    return [pieces[place] for place in np.argsort(stream.order)]


def binary(logit: float, label: bool) -> float:
    return float(np.log1p(np.exp(-logit if label else logit)))


def linear(layer: nn.Module, values: Array) -> Array:
    assert isinstance(layer, nn.Linear)
    return values @ layer.weight.detach().numpy().T + layer.bias.detach().numpy()


def gelu(values: Array) -> Array:
    return values * (1 + erf(values / np.sqrt(2))) / 2


def predicted(head: nn.Module, weight: Array, state: Array) -> Array:
    """Compute the logits of BERT's prediction head from one state and the embeddings."""
    assert isinstance(head, LanguageHead) and head.bias is not None
    wide = gelu(linear(head.dense, state))
    scaled = (wide - wide.mean()) / np.sqrt(wide.var() + 1e-5)
    normalised = scaled * head.norm.weight.detach().numpy() + head.norm.bias.detach().numpy()
    return weight @ normalised + head.bias.detach().numpy()


def language_loss(step: Step, head: nn.Module, states: list[Array]) -> float:
    inputs, weight = step.prepared.inputs, step.embeddings.weight.detach().numpy()
    rows = zip(*(inputs[name].tolist() for name in ("members", "positions", "targets")), strict=True)
    return float(
        np.mean([-log_softmax(predicted(head, weight, states[row][place]))[target] for row, place, target in rows])
    )


def next_loss(step: Step, states: list[Array]) -> float:
    follows = step.prepared.inputs["follows"].tolist()
    head = step.heads["next_sentence"]
    actual = [binary(linear(head, state[0])[0], bool(label)) for state, label in zip(states, follows, strict=True)]
    return float(np.mean(actual))


def mean_loss(step: Step, states: torch.Tensor, stream: TokenStream) -> torch.Tensor:
    """Compute the loss of a batch in one pass, as the loop does."""
    assert step.prepared.weights is not None
    actual = TokenStates(states, stream, step.everyone)
    return step.objective.loss_sum(actual, step.prepared.inputs, step.heads, step.embeddings) / int(
        step.prepared.weights.sum()
    )


def expect_gradients(plain: Callable[[], float], actual: torch.Tensor, leaves: list[torch.Tensor]) -> None:
    """Compare every leaf's gradient along a random direction with a finite difference."""
    slopes = torch.autograd.grad(actual, leaves)
    random = torch.Generator().manual_seed(1)
    for leaf, slope in zip(leaves, slopes, strict=True):
        direction = torch.randn(leaf.shape, generator=random, dtype=leaf.dtype)
        values = []
        for sign in (1, -1):
            with torch.no_grad():
                leaf.add_(direction, alpha=sign * 1e-6)
            values.append(plain())
            with torch.no_grad():
                leaf.sub_(direction, alpha=sign * 1e-6)
        assert float((slope * direction).sum()) == pytest.approx((values[0] - values[1]) / 2e-6, rel=1e-4, abs=1e-7)


@pytest.mark.parametrize("weight", [0.0, 1.0, 0.25])
def test_loss_is_the_mean_over_masked_tokens_plus_the_mean_over_pairs(weight: float) -> None:
    step = Step.of(next_sentence_weight=weight)
    stream = step.stream(step.everyone)
    states = torch.randn(stream.tokens, SIZE, dtype=torch.float64, requires_grad=True)

    def plain() -> float:
        actual = by_sequence(states, stream)
        return language_loss(step, step.heads["language"], actual) + (
            weight * next_loss(step, actual) if weight else 0.0
        )

    actual = mean_loss(step, states, stream)
    assert actual.item() == pytest.approx(plain(), rel=1e-10)
    expect_gradients(plain, actual, [states, step.embeddings.weight, *step.heads.parameters()])


@pytest.mark.parametrize("weight", [0.0, 0.5])
def test_detection_has_weight_50_and_labels_replaced_tokens(weight: float) -> None:
    """Compute labels by comparing with the original tokens."""
    step = Step.of(detection=True, next_sentence_weight=weight)
    inputs = step.prepared.inputs
    with torch.no_grad():
        stream, _ = step.objective.replace_tokens(
            step.stream(step.everyone), step.everyone, inputs, step.heads, step.embeddings
        )
    states = torch.randn(stream.tokens, SIZE, dtype=torch.float64, requires_grad=True)
    pieces = np.split(stream.ids.numpy(), np.cumsum(stream.lengths)[:-1])
    read = [pieces[place].tolist() for place in np.argsort(stream.order)]
    whole = restored(step.prepared)
    labels = [[token != other for token, other in zip(*both, strict=True)] for both in zip(read, whole, strict=True)]
    hidden = set(zip(inputs["members"].tolist(), inputs["positions"].tolist(), strict=True))
    changed = {(row, place) for row, row_labels in enumerate(labels) for place, one in enumerate(row_labels) if one}
    assert changed < hidden  # one was filled in with itself, so that both kinds are there
    assert len(changed) > 5

    def plain() -> float:
        actual = by_sequence(states, stream)
        head = step.heads["detection"]
        assert isinstance(head, nn.Sequential)
        losses = [
            binary(linear(head[2], gelu(linear(head[0], state)))[0], label)
            for row, own in enumerate(labels)
            for state, label in zip(actual[row], own, strict=True)
        ]
        return 50 * float(np.mean(losses)) + (weight * next_loss(step, actual) if weight else 0.0)

    actual = mean_loss(step, states, stream)
    assert actual.item() == pytest.approx(plain(), rel=1e-10)
    used = [value for name, value in step.heads.named_parameters() if not name.startswith("generator.")]
    expect_gradients(plain, actual, [states, *used])


def test_the_generator_samples_with_the_batchs_random_numbers() -> None:
    step = Step.of(detection=True)
    inputs = step.prepared.inputs
    masked = step.stream(step.everyone)
    replaced, loss = step.objective.replace_tokens(masked, step.everyone, inputs, step.heads, step.embeddings)
    generator = step.heads["generator"]
    assert isinstance(generator, Generator)
    states = by_sequence(generator(masked, step.embeddings), masked)
    assert step.prepared.weights is not None
    mean = loss.item() / int(step.prepared.weights.sum())
    assert mean == pytest.approx(language_loss(step, generator.language, states), rel=1e-10)
    weight = step.embeddings.weight.detach().numpy()
    read = [sequence.tolist() for sequence in step.prepared.sequences]
    for row, place, uniform in zip(inputs["members"], inputs["positions"], inputs["uniforms"], strict=True):
        added = np.cumsum(softmax(predicted(generator.language, weight, states[row][place])))
        read[row][place] = int(np.argmax(added > uniform))
    pieces = np.split(replaced.ids.numpy(), np.cumsum(replaced.lengths)[:-1])
    assert [pieces[place].tolist() for place in np.argsort(replaced.order)] == read
    assert not loss.isnan()
    loss.backward()
    assert all(value.grad is not None and value.grad.abs().sum() > 0 for value in generator.parameters())


def test_sampled_tokens_do_not_depend_on_the_chunk() -> None:
    step = Step.of(detection=True)

    def read(members: npt.NDArray[np.int64]) -> dict[int, list[int]]:
        stream, _ = step.objective.replace_tokens(
            step.stream(members), members, step.prepared.inputs, step.heads, step.embeddings
        )
        pieces = np.split(stream.ids.numpy(), np.cumsum(stream.lengths)[:-1])
        return {
            int(member): pieces[place].tolist() for member, place in zip(members, np.argsort(stream.order), strict=True)
        }

    together = read(step.everyone)
    assert together == {**read(np.array([4, 0])), **read(np.array([2])), **read(np.array([1, 3]))}


@given(st.integers(0, 10**6), st.integers(1, 12))
def test_tokens_are_sampled_by_their_probability(seed: int, size: int) -> None:
    logits = np.random.default_rng(seed).normal(0, 2, size)
    logits[:: max(2, size // 3)] -= 1e4 * (size > 1)  # which nothing may draw
    grid = (torch.arange(1000) + 0.5) / 1000
    sampled = sample_tokens(torch.tensor(logits).expand(1000, -1), grid).numpy()
    shares = np.bincount(sampled, minlength=size) / 1000
    assert np.abs(shares - softmax(logits)).max() < 2e-3
    assert softmax(logits)[int(sample_tokens(torch.tensor(logits)[None], torch.zeros(1)))] > 0


# ---- errors


@pytest.mark.parametrize(
    ("family", "change", "message"),
    [
        ("t5", "next_sentence_weight=1", "no token such as .CLS. .*next_sentence_weight=0"),
        ("t5", "next_sentence_weight=0", "no mask token such as .MASK."),
        ("electra", "detection=false", "embeddings have 16 dimensions and its states 32"),
        ("electra", "detection=true", "embeddings have 16 dimensions and its states 32"),
    ],
)
def test_unsuitable_backbones_are_rejected(
    family: str, change: str, message: str, tiny_folder: Callable[[str], Path], tmp_path: Path
) -> None:
    with pytest.raises(TurnwiseError, match=message):
        train(recipe("post-training", f"backbone={tiny_folder(family)}", change), corpus(), tmp_path / "run")


# ---- runs


RECIPES = ["post-training", "post-training-electra"]


def small_recipe(name: str, *changes: str, dropout: float = 0.0) -> Recipe:
    return recipe(name, "next_sentence_weight=0.5", "batch_size=6", *changes, dropout=dropout)


def weights(place: Path) -> dict[str, torch.Tensor]:
    return load_file(place / "model.safetensors")


def losses(place: Path) -> list[float]:
    return [json.loads(line)["loss"] for line in (place / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("name", RECIPES)
def test_chunks_do_not_change_gradients(name: str) -> None:
    whole = gradients(small_recipe(name, "tokens_per_forward=100000"))
    chunks = gradients(small_recipe(name, "tokens_per_forward=150"))
    assert chunks[0] == pytest.approx(whole[0], rel=1e-5)
    assert chunks[1].keys() == whole[1].keys()
    for key, value in whole[1].items():
        assert torch.allclose(chunks[1][key], value, atol=1e-5 * float(value.abs().max()) + 1e-6), key


@pytest.mark.parametrize("detection", [False, True])
def test_gradient_with_another_objective_is_the_weighted_sum(detection: bool) -> None:
    """In one pass with masked language modelling, whose sequences are shorter."""

    def run(*counted: float) -> tuple[float, dict[str, torch.Tensor]]:
        own = {"next_sentence_weight": 0.5, "detection": detection, "length": 64, "weight": counted[0]}
        tree = {"post-training": own, "masked-language": {"weight": counted[1]}}
        run_recipe = Recipe(tree, backbone=backbone(0.0), batch_size=4, steps=2, max_length=24, tokens_per_forward=150)
        return gradients(run_recipe)

    together, alone = run(1.0, 0.5), [run(1.0, 0.0), run(0.0, 0.5)]
    assert together[0] == pytest.approx(sum(loss for loss, _ in alone), rel=1e-5)
    for key, value in together[1].items():
        summed = alone[0][1][key] + alone[1][1][key]
        assert torch.allclose(value, summed, atol=1e-5 * float(value.abs().max()) + 1e-6), key


@pytest.mark.parametrize("name", RECIPES)
def test_gradients_of_two_processes_average_to_the_gradient(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compute in turn what two processes would compute."""
    setup = set_up_run(small_recipe(name))
    trained = start_step(setup)
    part, prepared = setup.parts[0], setup.loaders[0].prepare(0)
    monkeypatch.setattr(passes.dist, "all_reduce", lambda *_: None)

    def step(rank: int, world: int) -> tuple[float, dict[str, torch.Tensor]]:
        trained.optimizer.zero_grad(set_to_none=True)
        (value,) = TokenPass(setup.encoder, 300, rank, world).run([part], [prepared], lambda _: None)
        return float(value), {
            key: actual.grad.clone() for key, actual in trained.parameters.items() if actual.grad is not None
        }

    alone, shares = step(0, 1), [step(rank, 2) for rank in range(2)]
    assert sum(value for value, _ in shares) == pytest.approx(alone[0], rel=1e-5)
    for key, value in alone[1].items():
        both = (shares[0][1][key] + shares[1][1][key]) / 2
        assert torch.allclose(both, value, atol=1e-5 * float(value.abs().max()) + 1e-6), key


@pytest.mark.full
def test_two_processes_equal_one(tmp_path: Path) -> None:
    recipes = {
        f"{name}-{budget}": small_recipe(
            name, "steps=3", "batch_size=7", "optimizer=adam", f"tokens_per_forward={budget}"
        )
        for name in RECIPES
        for budget in (100000, 200)
    }
    (tmp_path / "two").mkdir()
    for name, run_recipe in recipes.items():
        (tmp_path / "two" / f"{name}.yaml").write_text(run_recipe.to_yaml())
    Job(2, tmp_path, job.train_all, tmp_path / "two", corpus().stores[0].folder).expect_done()
    for name, run_recipe in recipes.items():
        train(run_recipe, corpus(), tmp_path / "one" / name)
        expect_close(tmp_path / "one" / name, tmp_path / "two" / name)


@pytest.mark.parametrize("name", RECIPES)
def test_resumed_runs_have_identical_weights(name: str, tmp_path: Path) -> None:
    run_recipe = small_recipe(name, "checkpoint_every=2", "steps=4", "schedule=linear", dropout=0.1)
    train(run_recipe, corpus(), tmp_path / "uninterrupted")

    class Cut(Exception):  # noqa: N818
        pass

    def progress(what: str, done: int, total: int | None = None) -> None:
        if what.startswith("training") and done == 3:
            raise Cut

    with pytest.raises(Cut):
        train(run_recipe, corpus(), tmp_path / "run", progress=progress)
    train(run_recipe, corpus(), tmp_path / "run", resume=True)
    first, second = weights(tmp_path / "uninterrupted"), weights(tmp_path / "run")
    assert first.keys() == second.keys()
    assert all(torch.equal(first[key], second[key]) for key in first)


@pytest.mark.parametrize("name", RECIPES)
def test_training_reduces_the_loss_and_saves_an_encoder_with_end_of_turn(name: str, tmp_path: Path) -> None:
    rates = ("learning_rate=3e-3", "head_learning_rate=3e-3", "schedule=constant")
    run_recipe = small_recipe(name, "steps=25", "batch_size=4", "length=48", *rates, dropout=0.1)
    trained = train(run_recipe, corpus(), tmp_path / "run")
    actual = losses(tmp_path / "run")
    assert np.mean(actual[-10:]) < 0.85 * np.mean(actual[:10])
    again = Encoder.load(tmp_path / "run", device="cpu")
    end = again.composer.special["[EOT]"]
    assert end == len(Encoder.load(backbone(0.1), device="cpu").backbone.tokenizer)
    texts = ["where is my parcel ?", "thank you"]
    assert np.allclose(trained.encode(texts), again.encode(texts), atol=1e-6)
    assert not any("generator" in key or "next_sentence" in key for key in weights(tmp_path / "run"))


def test_the_next_stage_starts_from_post_training(tmp_path: Path) -> None:
    first = {"objectives": {"post-training": {"length": 64}}, "steps": 2, "batch_size": 4, "learning_rate": 1e-3}
    path = tmp_path / "staged.yaml"
    path.write_text(json.dumps({"first": first, "objectives": {"masked-language": {"unit": "dialogue"}}}))
    run_recipe = load_recipe(
        path, [f"backbone={backbone()}", "steps=1", "batch_size=4", "learning_rate=1e-50", "dropout=0.0"]
    )
    train(run_recipe, corpus(), tmp_path / "run")
    before, after = weights(tmp_path / "run" / "first"), weights(tmp_path / "run")
    assert all(torch.equal(before[key], after[key]) for key in before)
    layer = "encoder.layer.0.output.dense.weight"
    assert not torch.equal(before[layer], weights(Path(backbone()))[layer])
    assert "[EOT]" in Encoder.load(tmp_path / "run", device="cpu").composer.special
