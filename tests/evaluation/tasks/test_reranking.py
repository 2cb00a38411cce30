"""Re-ranking against plain statements of UMS's metrics; how the adversarial set is made; ties."""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.helpers.encoders import ConstantEncoder, TextEncoder
from turnwise.core.dialogue import Turn
from turnwise.core.errors import DatasetError
from turnwise.corpus.readers.responses import Candidates
from turnwise.evaluation.metrics import Outcome
from turnwise.evaluation.tasks.responses import (
    Context,
    cosine_scores,
    make_adversarial,
    merge_duplicates,
    rerank,
    rerank_adversarial,
)
from turnwise.models.backbone.inputs import ROLE_TOKENS
from turnwise.models.encoder import Encoder


class Lengths:
    """A re-ranker that prefers long candidates, and records what it scores."""

    def __init__(self) -> None:
        self.contexts: list[tuple[str, ...]] = []

    def score(self, context: Sequence[str], candidates: Sequence[str]) -> npt.NDArray[np.float32]:
        self.contexts.append(tuple(context))
        return np.array([len(candidate) for candidate in candidates], np.float32)


class Letters(TextEncoder):
    """Counts letters."""

    def __init__(self) -> None:
        super().__init__(lambda text: [text.count(letter) + 0.1 for letter in "abcdef"], max_length=128)


def values(outcomes: Sequence[Outcome]) -> dict[str, float]:
    return {outcome.metric: outcome.row().value for outcome in outcomes}


#: Lengths of the candidates decide; the first context has two right ones (ranks 1 and 4), the second one (rank 2), the
#: third none.
EXAMPLES = [
    Candidates(("hi", "so?"), ("aaaa", "bbb", "cc", "d"), (True, False, False, True)),
    Candidates(("hello",), ("a", "bb", "cccc", "eee"), (False, False, False, True)),
    Candidates(("you there?",), ("a", "bb", "ccc", "dddd"), (False, False, False, False)),
]


def test_metrics_worked_out_by_hand() -> None:
    outcomes = rerank(Lengths(), EXAMPLES, "toy")
    assert {outcome.setting for outcome in outcomes} == {"re-ranker"}
    assert values(outcomes) == pytest.approx(
        {
            "R4@1": (1 / 2 + 0) / 2,
            "R4@2": (1 / 2 + 1) / 2,
            "R4@5": 1,
            "MAP": ((1 / 1 + 2 / 4) / 2 + 1 / 2) / 2,
            "MRR": (1 + 1 / 2) / 2,
            "P@1": 1 / 2,
            "contexts without a right response": 1,
        }
    )
    assert {outcome.metric: outcome.evidence.shape for outcome in outcomes}["MAP"] == (1, 2)


def test_a_re_ranker_gets_the_history_or_its_last_turn() -> None:
    whole, last = Lengths(), Lengths()
    rerank(whole, EXAMPLES, "toy")
    assert whole.contexts == [("hi", "so?"), ("hello",)]
    assert rerank(last, EXAMPLES, "toy", context="last")[0].setting == "re-ranker, last turn"
    assert last.contexts == [("so?",), ("hello",)]


turns = st.lists(st.text("abcdef ", min_size=1, max_size=6), min_size=1, max_size=4)


@settings(deadline=None, max_examples=40)
@given(
    st.lists(
        st.tuples(turns, st.lists(st.text("abcdef", min_size=1, max_size=5), min_size=3, max_size=3, unique=True))
    ),
    st.booleans(),
)
def test_an_encoder_ranks_by_cosine(contexts: list[tuple[list[str], list[str]]], history: bool) -> None:
    examples = [Candidates(tuple(context), tuple(responses), (False, True, False)) for context, responses in contexts]
    if not examples:
        with pytest.raises(DatasetError, match="toy has no context with a correct response"):
            rerank(Letters(), examples, "toy")
        return
    outcomes = rerank(Letters(), examples, "toy", context="history" if history else "last")
    assert outcomes[0].setting == ("cosine, history" if history else "cosine, last turn")
    encoder = Letters()
    for number, example in enumerate(examples):
        query = encoder.encode(
            [" ".join(example.context if history else example.context[-1:])], normalise=True, max_length=128
        )[0]
        scores = [
            float(encoder.encode([text], normalise=True, max_length=128)[0].astype(float) @ query)
            for text in example.responses
        ]
        above = sum(score > scores[1] + 1e-6 for score in scores)
        level = sum(abs(score - scores[1]) <= 1e-6 for score in scores)
        assert above + 1 <= round(1 / {o.metric: o for o in outcomes}["MRR"].evidence[0, number]) <= above + level


def test_speakers_alternate_and_the_response_is_the_systems() -> None:
    encoder = Letters()
    rerank(encoder, [Candidates(("ab", " ", "cd", "ef"), ("a", "b"), (True, False))], "toy")
    rerank(encoder, [Candidates(("ab", "cd", "ef"), ("", "b"), (False, True))], "toy", context="last")
    assert encoder.inputs == [
        (Turn("user", "ab"), Turn("system", "cd"), Turn("user", "ef")),
        *((Turn("system", text),) for text in "ab"),
        (Turn("user", "ef"),),
        "",
        (Turn("system", "b"),),
    ]


@pytest.mark.parametrize("context", ["history", "last"])
def test_a_model_that_marks_speakers_is_evaluated_too(context: Context, tiny_folder: Callable[[str], Path]) -> None:
    encoder = Encoder.load(tiny_folder("bert"), device="cpu")
    encoder.backbone.add_tokens(tuple(ROLE_TOKENS.values()))
    encoder.style = "roles"
    example = Candidates(
        ("hello", "how can I help?", "where is my parcel?"), ("good morning", "a parcel of books"), (False, True)
    )
    query, *responses = encoder.encode(
        [
            [Turn(speaker, text) for speaker, text in zip(("user", "system", "user"), example.context, strict=True)][
                -1 if context == "last" else 0 :
            ],
            *([Turn("system", text)] for text in example.responses),
        ],
        normalise=True,
    )
    np.testing.assert_allclose(cosine_scores(encoder, [example], context)[0], np.stack(responses) @ query, atol=1e-5)


def test_an_encoder_that_has_learnt_nothing_gets_nothing() -> None:
    """Ties are exact even where products of matrices would round them apart."""
    example = Candidates(("hello",), tuple(f"answer {n}" for n in range(37)), (False,) * 20 + (True,) + (False,) * 16)
    actual = values(rerank(ConstantEncoder(), [example], "toy"))
    assert actual == pytest.approx({"R37@1": 0, "R37@2": 0, "R37@5": 0, "MAP": 1 / 37, "MRR": 1 / 37, "P@1": 0})
    assert values(rerank_adversarial(ConstantEncoder(), [example], "toy"))["adversary first"] == 1


@settings(deadline=None)
@given(st.lists(st.tuples(st.sampled_from("abcd"), st.booleans()), min_size=1))
def test_copies_of_right_candidates_merge_with_them(rows: list[tuple[str, bool]]) -> None:
    example = Candidates(("hello",), tuple(text for text, _ in rows), tuple(right for _, right in rows))
    actual = merge_duplicates(example)
    right = {text for text, is_right in rows if is_right}
    assert sorted(actual.positives) == sorted(right)
    wrong = [text for text, is_right in zip(actual.responses, actual.labels, strict=True) if not is_right]
    assert wrong == [text for text, _ in rows if text not in right]


some = st.builds(
    lambda context, rows: Candidates(
        tuple(context), tuple(text for text, _ in rows), tuple(right for _, right in rows)
    ),
    st.lists(st.sampled_from(["hi", "so?", "yes", "no"]), min_size=1, max_size=4),
    st.lists(st.tuples(st.sampled_from(["yes", "no", "fine", "later", "why?"]), st.booleans()), min_size=1, max_size=6),
)


@settings(deadline=None)
@given(st.lists(some), st.integers(0, 5))
def test_adversaries_are_utterances_of_the_context(examples: list[Candidates], seed: int) -> None:
    fit = [
        example
        for example in examples
        if example.positives and not all(example.labels) and set(example.context) - set(example.positives)
    ]
    made = make_adversarial(examples, seed)
    assert made == make_adversarial(examples, seed)
    assert len(made) == len(fit)
    for before, (after, place) in zip(fit, made, strict=True):
        assert after.responses[place] in before.context
        assert after.responses[place] not in before.positives
        assert not before.labels[place]
        assert (after.context, after.labels) == (before.context, before.labels)
        others = [index for index in range(len(before.responses)) if index != place]
        assert [after.responses[index] for index in others] == [before.responses[index] for index in others]


def test_adversarial_metrics_worked_out_by_hand() -> None:
    examples = [
        # the adversary is longest: it comes first, and the truth second
        Candidates(("a long utterance",), ("aaaa", "bbb", "cc"), (True, False, False)),
        # the adversary is as long as the truth: a tie, which counts against the model twice
        Candidates(("four",), ("aaaa", "bbb"), (True, False)),
        # the truth is longest
        Candidates(("two",), ("aaaa", "bbb"), (True, False)),
    ]
    outcomes = rerank_adversarial(Lengths(), examples, "toy")
    assert {outcome.setting for outcome in outcomes} == {"re-ranker, adversarial"}
    assert values(outcomes) == pytest.approx({"R3@1": 1 / 3, "MRR": (1 / 2 + 1 / 2 + 1) / 3, "adversary first": 2 / 3})


def test_nothing_to_make_an_adversary_of() -> None:
    with pytest.raises(DatasetError, match="toy has no context with a correct response, a wrong one"):
        rerank_adversarial(Lengths(), [Candidates(("yes",), ("yes", "no"), (True, False))], "toy")
