"""Response selection by similarity against plain statements; how candidates are sampled; ties go against the model."""

import math
from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.helpers.encoders import ConstantEncoder, TextEncoder
from turnwise.core.errors import DatasetError
from turnwise.corpus.readers.responses import Candidates
from turnwise.evaluation.metrics import Outcome
from turnwise.evaluation.tasks.responses import _random_pools, rank_answers, rank_responses


class Oracle(TextEncoder):
    """Places a question beside its answer, by their shared number."""

    def __init__(self) -> None:
        axes = np.eye(400)
        super().__init__(lambda text: axes[int(text.rpartition(" ")[2])], max_length=128)


class Numbers(TextEncoder):
    """Encodes texts that are numbers: the nearer two are, the more similar."""

    def __init__(self) -> None:
        super().__init__(lambda text: [f(float(text.rpartition(" ")[2]) / 100) for f in (math.cos, math.sin)], 128)


def values(outcomes: Sequence[Outcome]) -> dict[str, float]:
    return {outcome.metric: outcome.row().value for outcome in outcomes}


EVERYTHING = {"Top-1": 100, "Top-3": 100, "Top-5": 100, "Top-10": 100}
NOTHING = dict.fromkeys(EVERYTHING, 0)
PAIRS = [(f"question {n}", f"answer {n}") for n in range(350)]


def test_an_oracle_gets_everything_and_a_constant_nothing() -> None:
    for pool, count, setting in (("random", 350, "0-shot similarity"), ("chunks", 300, "0-shot similarity, chunks")):
        ranked = rank_answers(Oracle(), PAIRS, "toy", pools=[pool])  # type: ignore[arg-type]
        assert values(ranked) == EVERYTHING
        assert {(outcome.setting, outcome.evidence.shape) for outcome in ranked} == {(setting, (1, count))}
        assert values(rank_answers(ConstantEncoder(), PAIRS, "toy", pools=[pool])) == NOTHING  # type: ignore[arg-type]


def test_each_distinct_text_is_encoded_once() -> None:
    encoder = Oracle()
    rank_answers(encoder, PAIRS * 2, "toy", pools=["random", "chunks"])
    assert Counter(encoder.encoded) == Counter(text for pair in PAIRS for text in pair)


@settings(deadline=None)
@given(st.lists(st.integers(0, 9), min_size=1, max_size=40), st.integers(0, 3))
def test_random_pools_hold_the_answer_and_others_that_differ(answers: list[int], seed: int) -> None:
    """No pair twice, never the truth's text, and as many as were asked for."""
    commonest = max(Counter(answers).values())
    candidates = max(1, len(answers) - commonest)
    given_answers = np.array(answers, np.int64)
    (block, pools), *rest = _random_pools(given_answers, candidates, seed)
    assert not rest
    assert block.tolist() == list(range(len(answers)))
    for pair, pool in zip(block, pools, strict=True):
        assert pool[0] == pair
        assert len(set(pool.tolist())) == candidates
        assert all(answers[other] != answers[pair] for other in pool[1:])


def test_random_pools_draw_every_other_answer_alike() -> None:
    """Of 6 answers, two of which say the same, each of the 4 that differ is drawn in half of the pools of 1 + 2."""
    answers = np.array([3, 1, 3, 0, 2, 4])
    sampled = Counter(
        other for seed in range(400) for _, pools in _random_pools(answers, 3, seed) for other in pools[0][1:].tolist()
    )
    assert sorted(sampled) == [1, 3, 4, 5]
    assert all(150 <= count <= 250 for count in sampled.values())


def test_a_truth_that_others_give_too_is_counted_once() -> None:
    """Every answer is given by three: copies neither stand against a truth nor fill its pool."""
    pairs = [(f"question {n % 60}", f"answer {n % 60}") for n in range(180)]
    assert values(rank_answers(Oracle(), pairs, "toy", candidates=20)) == EVERYTHING
    assert values(rank_answers(Oracle(), pairs, "toy", candidates=90, pools=["chunks"])) == EVERYTHING


def test_chunks_rank_among_their_own_answers() -> None:
    random = np.random.default_rng(0)
    # no two answers are equally far from a question
    pairs = [(f"question {random.integers(90)}.3", f"answer {random.integers(90)}") for _ in range(47)]
    ranked = {
        outcome.metric: outcome.evidence[0]
        for outcome in rank_answers(Numbers(), pairs, "toy", candidates=10, pools=["chunks"])
    }
    assert len(ranked["Top-1"]) == 40
    for number in range(40):
        chunk = pairs[number // 10 * 10 :][:10]
        query, truth = (float(text.split()[1]) for text in pairs[number])
        others = [float(answer.split()[1]) for _, answer in chunk]
        rank = 1 + sum(abs(other - query) < abs(truth - query) for other in others)
        assert [bool(ranked[f"Top-{cutoff}"][number]) for cutoff in (1, 3, 5, 10)] == [
            rank <= cutoff for cutoff in (1, 3, 5, 10)
        ]


@pytest.mark.parametrize("pool", ["random", "chunks"])
def test_too_few_answers_say_so(pool: str) -> None:
    for pairs in ([], PAIRS[:99]):
        with pytest.raises(DatasetError, match="toy has too few answers for 100 candidates"):
            rank_answers(Oracle(), pairs, "toy", pools=[pool])  # type: ignore[arg-type]
    assert values(rank_answers(Oracle(), PAIRS[:100], "toy", pools=[pool])) == EVERYTHING  # type: ignore[arg-type]


EXAMPLES = [
    Candidates(
        ("hello 399", f"question {n}"), tuple(f"answer {(n + k) % 50}" for k in range(20)), (True,) + (False,) * 19
    )
    for n in range(30)
]


def test_responses_to_histories() -> None:
    ranked = rank_responses(Oracle(), EXAMPLES, "toy")
    assert values(ranked) == EVERYTHING
    assert {outcome.setting for outcome in ranked} == {"0-shot similarity, history"}
    assert values(rank_responses(ConstantEncoder(), EXAMPLES, "toy")) == NOTHING


def test_the_truth_among_its_candidates_twice_is_counted_once() -> None:
    doubled = [
        Candidates(each.context, (*each.responses, each.responses[0]), (*each.labels, False)) for each in EXAMPLES
    ]
    assert values(rank_responses(Oracle(), doubled, "toy")) == EVERYTHING


def test_contexts_without_an_answer_are_left_out() -> None:
    extra = Candidates(("hello 1",), ("answer 1", "answer 2"), (False, False))
    outcomes = rank_responses(Oracle(), [*EXAMPLES, extra], "toy")
    assert {outcome.evidence.shape for outcome in outcomes} == {(1, 30)}
    with pytest.raises(DatasetError, match="no context with a correct response"):
        rank_responses(Oracle(), [extra], "toy")
