"""Ranking by similarity against plain statements; ties never favour the model."""

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwise.corpus.responses import Candidates
from turnwise.evaluation.tasks.responses import rank_responses, ranks


@given(st.lists(st.tuples(st.integers(0, 3), st.booleans()), min_size=1, max_size=12).filter(lambda rows: any(r for _, r in rows)))
def test_ranks_equal_a_plain_statement(rows: list[tuple[int, bool]]) -> None:
    """A right candidate stands behind every wrong one that scores as much, and behind right ones that score more."""
    scores, labels = np.array([score for score, _ in rows], float), np.array([right for _, right in rows])
    expected = []
    for score, right in rows:
        if right:
            wrong = sum(other >= score for other, is_right in rows if not is_right)
            expected.append(1 + wrong + sum(other > score for other, is_right in rows if is_right))
    assert ranks(scores, labels).tolist() == expected


class Constant:
    """An encoder that has learnt nothing: all texts are one."""

    def encode(self, inputs: list[object], *, normalise: bool | None = None) -> npt.NDArray[np.float32]:
        return np.ones((len(inputs), 4), np.float32) / 2


class Oracle:
    """An encoder that puts a question beside its answer, by their shared number."""

    def encode(self, inputs: list[object], *, normalise: bool | None = None) -> npt.NDArray[np.float32]:
        texts = [item if isinstance(item, str) else item[-1] for item in inputs]  # type: ignore[index]
        return np.eye(50, dtype=np.float32)[[int(text.rpartition(" ")[2]) for text in texts]]


EXAMPLES = [
    Candidates(("hello", f"question {n}"), tuple(f"answer {(n + k) % 50}" for k in range(10)), (True,) + (False,) * 9)
    for n in range(30)
]


def test_an_oracle_gets_everything_and_a_constant_nothing() -> None:
    perfect = {outcome.metric: outcome.row().value for outcome in rank_responses(Oracle(), EXAMPLES, "toy")}
    assert perfect == {"R10@1": 100, "R10@2": 100, "R10@5": 100, "MRR": 100}
    nothing = {outcome.metric: outcome.row().value for outcome in rank_responses(Constant(), EXAMPLES, "toy", "history")}
    assert nothing["R10@1"] == nothing["R10@5"] == 0
    assert nothing["MRR"] == pytest.approx(10)


def test_contexts_without_an_answer_are_passed_over() -> None:
    extra = Candidates(("hello 1",), ("answer 1", "answer 2"), (False, False))
    outcomes = rank_responses(Oracle(), [*EXAMPLES, extra], "toy")
    assert all(outcome.values.shape == (1, 30) for outcome in outcomes)
