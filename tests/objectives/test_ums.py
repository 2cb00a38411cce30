"""UMS: losses equal direct implementations, inputs can be decoded, and nothing leaks the answer."""

import functools
import itertools
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.ensemble import HistGradientBoostingClassifier

from tests.helpers.tiny import backbone, folder, gradients, set_up_run
from tests.helpers.tiny import corpus as tiny_corpus
from tests.helpers.turns import turn_table
from turnwise.core.dialogue import RIGHT_RESPONSE, SYSTEM, USER, WRONG_RESPONSE, Dialogue, Turn
from turnwise.core.errors import RecipeError, TurnwiseError
from turnwise.models.backbone.inputs import Composer
from turnwise.models.backbone.load import load_backbone
from turnwise.models.reranker import Reranker
from turnwise.objectives.losses import binary_classification, mark_classification
from turnwise.objectives.objective import Batch, Objective, PreparedBatch, TurnTable
from turnwise.objectives.registry import make_objective
from turnwise.objectives.ums import Deletion, Insertion, ResponseSelection, Search
from turnwise.training.batches import BatchLoader, LoaderConfig, prepare_ahead
from turnwise.training.disk_cache import TrainingCorpus
from turnwise.training.examples import extract_examples
from turnwise.training.recipe import Recipe
from turnwise.training.tokens import tokenise_corpus

TASKS = {"insertion": Insertion, "deletion": Deletion, "search": Search}
MARKS = ("[EOT]", "[INS]", "[DEL]", "[SRCH]")

# ---- the equations


def cross_entropy(logit: float, label: float) -> float:
    probability = 1 / (1 + np.exp(-logit))
    return float(-(label * np.log(probability) + (1 - label) * np.log(1 - probability)))


@given(st.lists(st.tuples(st.floats(-8, 8), st.booleans()), min_size=1, max_size=9))
def test_binary_classification_is_binary_cross_entropy(pairs: list[tuple[float, bool]]) -> None:
    logits = torch.tensor([logit for logit, _ in pairs], dtype=torch.float64, requires_grad=True)
    loss = binary_classification(logits, torch.tensor([int(label) for _, label in pairs]))
    assert float(loss.detach()) == pytest.approx(sum(cross_entropy(*pair) for pair in pairs))
    loss.backward()
    expected = [1 / (1 + np.exp(-logit)) - label for logit, label in pairs]
    assert logits.grad is not None
    assert logits.grad.tolist() == pytest.approx(expected)


@given(
    st.lists(st.tuples(st.lists(st.floats(-8, 8), min_size=1, max_size=6), st.integers(0, 5)), min_size=1, max_size=5)
)
def test_mark_classification_equals_a_direct_implementation(windows: list[tuple[list[float], int]]) -> None:
    logits = torch.tensor([logit for each, _ in windows for logit in each], dtype=torch.float64)
    rows = torch.tensor([row for row, (each, _) in enumerate(windows) for _ in each])
    targets = torch.tensor([place == target % len(each) for each, target in windows for place in range(len(each))])
    by_mark = [
        np.mean([cross_entropy(logit, place == target % len(each)) for place, logit in enumerate(each)])
        for each, target in windows
    ]
    by_window = [-np.log(np.exp(each[target % len(each)]) / np.exp(each).sum()) for each, target in windows]
    assert float(mark_classification(logits, rows, targets)) == pytest.approx(sum(by_mark))
    assert float(mark_classification(logits, rows, targets, "softmax")) == pytest.approx(sum(by_window), abs=1e-9)


def test_softmax_over_marks_has_the_gradient_of_cross_entropy() -> None:
    logits = torch.randn(7, dtype=torch.float64, requires_grad=True)
    rows, targets = torch.tensor([0, 0, 0, 1, 1, 2, 2]), torch.tensor([0, 1, 0, 1, 0, 0, 1]).bool()
    assert torch.autograd.gradcheck(lambda values: mark_classification(values, rows, targets, "softmax"), logits)


# ---- inputs


@functools.cache
def composer() -> Composer:
    loaded = load_backbone(backbone())
    loaded.add_tokens(MARKS)
    return Composer.of(loaded.tokenizer)


def conversations(lengths: Sequence[Sequence[int]], repeated: Iterable[int] = ()) -> TurnTable:
    """Return dialogues whose turns repeat their number as token; the texts of some turns are equal."""
    identities = np.arange(sum(map(len, lengths)))
    identities[list(repeated)] = -1
    return turn_table(
        lengths, lambda turn, length: np.full(length, 1000 + turn, np.int32), identities.tolist(), (USER, SYSTEM)
    )


def batch_of(
    texts: TurnTable, windows: Any, seed: int = 0, longest: int = 128, labels: Sequence[int] | None = None
) -> Batch:
    actual = np.array(windows, np.int64)
    named = np.array(labels if labels is not None else [2] * len(actual), np.int64)
    return Batch(actual, named, texts, composer(), 64, longest, np.random.default_rng(seed))


def read(prepared: PreparedBatch, row: int, mark: str) -> tuple[list[int | None], int | None, int]:
    """Decode a sequence: the turns after its marks, the turn of its second segment, and the target mark."""
    tokens, segments = prepared.sequences[row].tolist(), prepared.segments
    assert segments is not None
    mine = prepared.inputs["members"] == row
    places = prepared.inputs["positions"][mine].tolist()
    assert all(tokens[place] == composer().special[mark] for place in places)
    assert places == [place for place, token in enumerate(tokens) if token == composer().special[mark]]
    behind = [tokens[place + 1] - 1000 if tokens[place + 1] >= 1000 else None for place in places]
    second = {
        token - 1000 for token, segment in zip(tokens, segments[row].tolist(), strict=True) if segment and token >= 1000
    }
    (answer,) = np.flatnonzero(prepared.inputs["targets"][mine])
    return behind, second.pop() if second else None, int(answer)


lengths = st.lists(st.lists(st.integers(1, 30), min_size=3, max_size=9), min_size=2, max_size=5)


@given(lengths, st.integers(0, 1000), st.sampled_from([40, 60, 128]))
def test_inputs_can_be_decoded(given_lengths: list[list[int]], seed: int, longest: int) -> None:
    """Also in truncated inputs, the target mark is where the paper says."""
    texts = conversations(given_lengths)
    starts = texts.dialogue_starts.tolist()
    windows = [[(first, last)] for first, last in itertools.pairwise(starts)]

    prepared = Insertion().prepare(batch_of(texts, windows, seed, longest))
    for row, ((first, last),) in enumerate(windows):
        behind, taken, answer = read(prepared, row, "[INS]")
        others = [turn for turn in behind if turn is not None]
        assert behind[-1] is None
        assert taken is not None
        whole = [*others[:answer], taken, *others[answer:]]
        assert whole == list(range(whole[0], whole[0] + min(5, last - first)))
        assert first <= whole[0] and whole[-1] < last

    prepared = Deletion().prepare(batch_of(texts, windows, seed, longest))
    for row, ((first, last),) in enumerate(windows):
        behind, nothing, answer = read(prepared, row, "[DEL]")
        assert nothing is None
        negative = behind.pop(answer)
        assert negative is not None and not first <= negative < last
        assert behind[0] is not None and behind == list(range(behind[0], behind[0] + min(5, last - first)))

    prepared = Search().prepare(batch_of(texts, windows, seed, longest))
    for row, ((first, last),) in enumerate(windows):
        behind, target, answer = read(prepared, row, "[SRCH]")
        assert target is not None and behind[answer] == target - 1
        assert sorted(turn for turn in behind if turn is not None) == list(range(target - len(behind), target))
        assert len(behind) == min(5, last - first) - 1

    for task in (Insertion, Deletion, Search):
        assert all(
            len(sequence) <= longest for sequence in task().prepare(batch_of(texts, windows, seed, longest)).sequences
        )


@pytest.mark.parametrize("longest", [48, 128])
@pytest.mark.parametrize("name", TASKS)
def test_mark_positions_do_not_leak_the_answer(name: str, longest: int) -> None:
    """A classifier that sees only the positions of the marks is at chance."""
    random = np.random.default_rng(5)
    texts = conversations([random.integers(1, 20, random.integers(3, 12)).tolist() for _ in range(2400)])
    windows = [[(first, last)] for first, last in itertools.pairwise(texts.dialogue_starts.tolist())]
    prepared = TASKS[name]().prepare(batch_of(texts, windows, 3, longest))
    seen, targets = [], []
    for row, sequence in enumerate(prepared.sequences):
        mine = prepared.inputs["members"] == row
        places = prepared.inputs["positions"][mine]
        gaps = np.diff([*places, len(sequence)])
        number = np.arange(len(places))
        features = [
            places,
            places / len(sequence),
            number,
            number / len(places),
            gaps,
            gaps / gaps.mean(),
            len(places) - number,
        ]
        seen.append(np.stack(features, 1))
        targets.append(prepared.inputs["targets"][mine])
    half = len(seen) // 2
    model = HistGradientBoostingClassifier(max_iter=40, random_state=0)
    model.fit(np.concatenate(seen[:half]), np.concatenate(targets[:half]))
    predictions = model.predict_proba(np.concatenate(seen[half:]))[:, 1]
    parts = np.split(predictions, np.cumsum([len(answers) for answers in targets[half:]])[:-1])
    actual = [answers[each.argmax()] for each, answers in zip(parts, targets[half:], strict=True)]
    chance = np.array([1 / len(answers) for answers in targets[half:]])
    assert abs(np.mean(actual) - chance.mean()) < 4 * np.sqrt((chance * (1 - chance)).sum()) / len(actual)


@pytest.mark.parametrize("name", TASKS)
def test_windows_cover_the_context(name: str) -> None:
    """Including the last utterance; the response only if requested."""
    texts = conversations([[3] * 9, [2] * 4])
    for with_response, last in ((False, 8), (True, 9)):
        objective = TASKS[name](with_response=with_response)
        *_, example = objective.examples(dialogue(9))
        assert example.windows == ((0, last),)
        seen: set[int] = set()
        for seed in range(80):
            prepared = objective.prepare(batch_of(texts, [example.windows], seed))
            seen |= {token - 1000 for token in prepared.sequences[0].tolist() if token >= 1000}
        assert seen - {9, 10, 11, 12} == set(range(last))


def dialogue(turns: int, label: str | None = None) -> Dialogue:
    predictions = [Turn(SYSTEM if place % 2 else USER, f"this is turn {place}") for place in range(turns)]
    if label is not None:
        predictions[-1] = replace(predictions[-1], intent=label)
    return Dialogue("one", tuple(predictions))


def test_which_turns_are_responses() -> None:
    def answered(**options: Any) -> list[int]:
        return [example.windows[1][0] for example in ResponseSelection(**options).examples(dialogue(6))]

    assert answered() == [1, 2, 3, 4, 5]
    assert answered(responses="system") == [1, 3, 5]
    assert answered(responses="last") == [5]
    assert not list(ResponseSelection().examples(dialogue(1)))
    assert [example.windows[0] for example in Search(responses="every").examples(dialogue(6))] == [
        (0, 3),
        (0, 4),
        (0, 5),
    ]
    assert [example.windows[0] for example in Insertion(responses="last").examples(dialogue(6))] == [(0, 5)]
    assert [example.windows[0] for example in Deletion(with_response=True).examples(dialogue(2))] == [(0, 2)]


def test_labelled_responses_keep_their_labels() -> None:
    right, wrong = dialogue(4, RIGHT_RESPONSE), dialogue(4, WRONG_RESPONSE)
    labels = [example.label for each in (right, wrong) for example in ResponseSelection().examples(each)]
    assert labels == [1, 0]
    assert [len(list(Insertion().examples(each))) for each in (right, wrong)] == [1, 0]
    texts = conversations([[3, 4, 5, 2], [1, 2, 3, 4]])
    prepared = ResponseSelection(negatives=3).prepare(
        batch_of(texts, [[(0, 3), (3, 4)], [(4, 7), (7, 8)]], labels=[1, 0])
    )
    assert prepared.inputs["labels"].tolist() == [1, 0]
    assert len(prepared.sequences) == 2


def test_wrong_responses_can_be_drawn_for_labelled_right_ones_too() -> None:
    texts = conversations([[3, 4, 5, 2], [1, 2, 3, 4], [2, 2, 2, 2]])
    prepared = ResponseSelection(negatives=3, draw_for_labelled=True).prepare(
        batch_of(texts, [[(0, 3), (3, 4)], [(4, 7), (7, 8)]], labels=[1, 0])
    )
    assert prepared.inputs["labels"].tolist() == [1, 0, 0, 0, 0]
    assert len(prepared.sequences) == 5


def draw_wrong_responses(objective: ResponseSelection, texts: TurnTable, seeds: int = 200) -> set[int]:
    """Collect the wrong responses drawn for turn 2."""
    actual = set()
    for seed in range(seeds):
        prepared = objective.prepare(batch_of(texts, [[(0, 2), (2, 3)]], seed))
        assert prepared.inputs["labels"].tolist() == [1] + [0] * objective.negatives
        for sequence, segments in zip(list(prepared.sequences)[1:], list(prepared.segments or [])[1:], strict=True):
            (turn,) = {
                token - 1000
                for token, segment in zip(sequence.tolist(), segments.tolist(), strict=True)
                if segment and token >= 1000
            }
            actual.add(turn)
    return actual


def test_sources_of_wrong_responses() -> None:
    texts = conversations([[2, 3, 4, 5], [2, 2, 3], [4, 4]], repeated=[2, 3, 6])
    users_elsewhere = {4, 7}  # of the truth's speaker; 6 repeats the truth
    assert draw_wrong_responses(ResponseSelection(negatives=2), texts) == users_elsewhere
    assert draw_wrong_responses(ResponseSelection(random=0, in_dialogue=1), texts) == {0, 1}  # 3 repeats it
    assert draw_wrong_responses(ResponseSelection(random=1, in_dialogue=1), texts) == {0, 1} | users_elsewhere
    mined = ResponseSelection(random=0, mined=1)
    assert mined.traits.miner == "minilm" and ResponseSelection().traits.miner is None
    assert draw_wrong_responses(mined, texts, 5) == {8}


def test_random_negatives_are_drawn_from_all_other_dialogues() -> None:
    texts = conversations([[1] * 3, [1] * 4, [1] * 2])
    for turn, own in ((0, range(3)), (5, range(3, 7)), (8, range(7, 9))):
        batch = batch_of(texts, [[(0, 1)]], turn)
        counts = Counter(batch.random_negative(turn, []) for _ in range(600))
        assert set(counts) == set(range(9)) - set(own)
        assert max(counts.values()) < 2 * min(counts.values())
    same = conversations([[1, 1], [1, 1]], repeated=range(4))
    for texts in (same, conversations([[1, 1, 1]])):
        with pytest.raises(TurnwiseError, match="no other texts to draw negatives from"):
            batch_of(texts, [[(0, 1)]]).random_negative(0, [-1])


def test_random_negatives_are_of_the_same_store() -> None:
    texts = conversations([[1] * 3, [1] * 4, [1] * 2, [1] * 2, [1] * 5])
    texts.store_starts = np.array([0, 7, 11, 16])
    batch = batch_of(texts, [[(0, 1)]])
    for turn, expected in ((1, range(3, 7)), (6, range(3)), (7, range(9, 11)), (10, range(7, 9)), (12, range(11))):
        # the last store has one dialogue
        assert {batch.random_negative(turn, []) for _ in range(300)} == set(expected)


def test_a_dialogue_that_differs_only_in_its_last_turn_is_not_another() -> None:
    """Labelled responses repeat a context for every candidate."""
    texts = conversations([[1] * 3, [1] * 3, [1] * 3, [1] * 2])
    texts.identities[3:5] = (0, 1)  # the second dialogue begins as the first
    batch = batch_of(texts, [[(0, 1)]])
    assert {batch.random_negative(0, []) for _ in range(300)} == {6, 7, 8, 9, 10}
    assert {batch.random_negative(6, []) for _ in range(300)} == {0, 1, 2, 3, 4, 5, 9, 10}


# ---- loaders


@functools.cache
def loaders() -> list[BatchLoader]:
    loaded = load_backbone(backbone())
    loaded.add_tokens(MARKS)
    texts = tokenise_corpus(TrainingCorpus(tiny_corpus(), folder() / "ums-cache"), loaded.tokenizer)
    objectives: dict[str, Objective] = {name: make_objective(name, {}) for name in ("response-selection", *TASKS)}
    examples = extract_examples(TrainingCorpus(tiny_corpus(), folder() / "ums-cache"), texts, objectives)
    return [
        BatchLoader(name, each, examples[name], texts, composer(), LoaderConfig(6, 24, 128, 5))
        for name, each in objectives.items()
    ]


def as_lists(prepared: PreparedBatch) -> tuple[Any, ...]:
    inputs = {name: values.tolist() for name, values in prepared.inputs.items()}
    return [each.tolist() for each in prepared.sequences], [each.tolist() for each in prepared.segments or []], inputs


def test_the_number_of_workers_changes_nothing() -> None:
    one, four = (
        [[as_lists(each) for each in step] for step in prepare_ahead(loaders(), 3, 9, workers)] for workers in (1, 4)
    )
    assert one == four
    assert one[0] == [as_lists(loader.prepare(3)) for loader in loaders()]


def test_preparing_batches_does_not_change_the_texts() -> None:
    """And preparing them again gives the same batches."""
    texts = loaders()[0].texts
    before = [texts.tokens(turn).tolist() for turn in range(int(texts.dialogue_starts[-1]))]
    first = [as_lists(loader.prepare(0)) for loader in loaders()]
    for step in range(5):
        for loader in loaders():
            loader.prepare(step)
    assert [texts.tokens(turn).tolist() for turn in range(len(before))] == before
    assert [as_lists(loader.prepare(0)) for loader in loaders()] == first


def test_a_response_is_never_in_its_own_context() -> None:
    """In the released code it was appended to the context in place, which leaked every label."""
    texts = conversations([[2, 3, 4, 5, 2, 2], [2, 2, 3]])
    for seed in range(20):
        prepared = ResponseSelection().prepare(batch_of(texts, [[(0, 4), (4, 5)]], seed))
        for sequence, segments in zip(prepared.sequences, prepared.segments or [], strict=True):
            context = {
                token - 1000
                for token, segment in zip(sequence.tolist(), segments.tolist(), strict=True)
                if not segment and token >= 1000
            }
            assert context == {0, 1, 2, 3}


# ---- objectives that share a head

THREADS = {"objective": "response-selection", "length": 64, "batch_size": 8}


def test_objectives_of_one_task_train_one_head() -> None:
    """The gradient of the head is the weighted sum of what each objective gives alone."""
    options = {"backbone": backbone(dropout=0.0), "batch_size": 8, "steps": 2, "dropout": 0.0, "attention_dropout": 0.0}
    both = {"first": {**THREADS, "head_dropout": 0.0}, "second": {**THREADS, "head_dropout": 0.0, "weight": 0.5}}
    _, together = gradients(Recipe(both, **options))
    alone = [gradients(Recipe({name: both[name]}, **options))[1] for name in both]
    assert [name for name in together if name.startswith("heads.")] == ["heads.first.1.weight", "heads.first.1.bias"]
    for part in ("weight", "bias"):
        expected = alone[0][f"heads.first.1.{part}"] + alone[1][f"heads.second.1.{part}"]
        torch.testing.assert_close(together[f"heads.first.1.{part}"], expected)


def test_the_reranker_accepts_the_longest_inputs_of_its_objectives() -> None:
    both = {"first": THREADS, "second": {**THREADS, "length": 96}}
    setup = set_up_run(Recipe(both, backbone=backbone(), steps=2))
    assert isinstance(setup.model, Reranker) and setup.model.max_length == 96


@pytest.mark.parametrize("change", [{"head_learning_rate": 1e-3}, {"head_dropout": 0.3}])
def test_objectives_that_share_a_head_must_agree(change: dict[str, float]) -> None:
    with pytest.raises(RecipeError, match=r"objectives\.first and objectives\.second train the same head"):
        Recipe({"first": THREADS, "second": {**THREADS, **change}}, backbone=backbone())


def test_objectives_that_mine_must_agree_on_the_encoder() -> None:
    both = {"first": {**THREADS, "mined": 0.5}, "second": {**THREADS, "mined": 0.5, "mined_by": "other"}}
    with pytest.raises(RecipeError, match="one encoder mines hard negatives for all objectives, not"):
        Recipe(both, backbone=backbone())


# ---- errors


def test_a_reranker_needs_response_selection() -> None:
    with pytest.raises(RecipeError, match="insertion, search: a re-ranker needs response-selection"):
        Recipe({"insertion": {}, "search": {}}, backbone=backbone())
