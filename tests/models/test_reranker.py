"""The re-ranker: equality with the plain model and sentence-transformers, saving and loading, rejected inputs."""

import json
import random
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
import torch
from sentence_transformers import CrossEncoder

import turnwise
from tests.helpers.families import LONGEST, WORDS, make_reranker, plain_model
from turnwise.core.dialogue import SYSTEM, USER, Turn
from turnwise.core.errors import ModelError
from turnwise.models.backbone.inputs import (
    MarkedInput,
    RerankerTask,
    marked_input,
    selection_input,
)
from turnwise.models.encoder import Encoder
from turnwise.models.reranker import Reranker, is_reranker, pair_text

Folder = Callable[[str], Path]

TASKS: tuple[RerankerTask, ...] = get_args(RerankerTask)

#: Families with a first token; those that UMS is trained on, and the others.
FAMILIES = ["bert", "electra", "roberta"]
OTHERS = [
    pytest.param(family, marks=pytest.mark.full) for family in ("distilbert", "xlm-roberta", "modernbert", "mpnet")
]


def words(chosen: random.Random, longest: int) -> str:
    return " ".join(chosen.choices(WORDS, k=chosen.randint(0, longest)))


def questions(seed: int = 0) -> list[tuple[list[str], list[str]]]:
    """Conversations with candidates, empty utterances among them; the last is far too long, at its head alone."""
    chosen = random.Random(seed)
    some = [
        (
            [words(chosen, 7) for _ in range(chosen.randint(1, 5))],
            [words(chosen, 9) for _ in range(chosen.randint(1, 4))],
        )
        for _ in range(6)
    ]
    return [*some, ([""], ["", "yes"]), (["hello " * 60, words(chosen, 9)], ["", "yes", words(chosen, 9)])]


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory, tiny_folder: Folder) -> Reranker:
    return make_reranker(tiny_folder("bert"))


def same(actual: list[np.ndarray], expected: list[np.ndarray]) -> None:
    assert len(actual) == len(expected)
    for mine, own in zip(actual, expected, strict=True):
        np.testing.assert_allclose(mine, own, atol=1e-5, rtol=0)


# ---- scores


def inputs(reranker: Reranker, task: RerankerTask) -> list[MarkedInput]:
    composer, composed = reranker.composer, []
    for context, (candidate, *_) in questions():
        turns = [reranker.tokenise([text])[text] for text in (*context, context[0])]
        target = reranker.tokenise([candidate])[candidate]
        if task == "selection":
            composed.append(selection_input(composer, turns, target, LONGEST))
        else:
            composed.append(marked_input(composer, task, turns, None if task == "deletion" else target, LONGEST))
    return composed


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("family", [*FAMILIES, *OTHERS])
def test_logits_equal_the_plain_model(family: str, task: RerankerTask, tiny_folder: Folder, tmp_path: Path) -> None:
    """The model as transformers has it, sequence by sequence, and the linear layer written out."""
    reranker = make_reranker(tiny_folder(family))
    reranker.backbone.save_transformer(tmp_path, LONGEST)
    model, head = plain_model(tmp_path), reranker.heads[task]
    marked = inputs(reranker, task)
    expected = []
    for each in marked:
        segments = (
            {"token_type_ids": torch.from_numpy(each.segments).long()[None]} if family in ("bert", "electra") else {}
        )
        with torch.no_grad():
            states = model(input_ids=torch.from_numpy(each.tokens).long()[None], **segments).last_hidden_state[0]
            expected.append((states[each.positions] @ head.weight[0] + head.bias).numpy())
    assert np.concatenate(expected).std() > 1e-2
    same(reranker.logits(task, marked), expected)
    same(reranker.logits(task, marked, batch_tokens=1), expected)
    same([states @ head.weight[0].detach().numpy() + head.bias.item() for states in reranker.states(marked)], expected)


def test_scores_do_not_depend_on_the_batch(bert: Reranker) -> None:
    queries = questions()
    together = bert.score_all(queries)
    same([bert.score(context, candidates) for context, candidates in queries], together)
    same(bert.score_all(queries[::-1], batch_tokens=50)[::-1], together)
    same(
        [np.concatenate([bert.score(context, [each]) for each in candidates]) for context, candidates in queries],
        together,
    )
    assert all(scores.dtype == np.float64 and ((scores > 0) & (scores < 1)).all() for scores in together)


def test_progress_counts_candidates(bert: Reranker) -> None:
    reports: list[tuple[int, int | None]] = []
    bert.score_all(questions(), batch_tokens=60, progress=lambda _, done, total=None: reports.append((done, total)))
    count = sum(len(candidates) for _, candidates in questions())
    assert len(reports) > 3 and reports == sorted(reports) and reports[-1] == (count, count)


def test_turns_and_strings_score_equally(bert: Reranker) -> None:
    context, candidates = ["i want a taxi", "yes", "where to"], ["to the hotel", "yes"]
    turns = [Turn(speaker, text) for speaker, text in zip((USER, SYSTEM, USER), context, strict=True)]
    assert bert.score(turns, candidates).tolist() == bert.score(context, candidates).tolist()
    assert pair_text(turns, "no") == ("i want a taxi[EOT]yes[EOT]where to[EOT]", "no[EOT]")


def test_truncation_of_long_contexts_and_candidates(bert: Reranker) -> None:
    newest = ["north " * 10, "where is it"]
    long, other, short = (
        bert.score([*old, *newest], ["yes"]).item() for old in (["no " * 100], ["hello " * 9 + "no " * 90], [])
    )
    assert long == other != short
    first, second = bert.score(newest, ["taxi " * 200 + "yes", "taxi " * 200 + "no"])
    assert first == pytest.approx(second, abs=1e-7)


def test_rank_is_stable_and_best_first(bert: Reranker) -> None:
    context, candidates = ["i want a taxi"], ["yes", "to the north", "yes", "where", "to the north"]
    scores = bert.score(context, candidates)
    ranked = bert.rank(context, candidates)
    assert [each.index for each in ranked] == sorted(range(5), key=lambda index: (-scores[index], index))
    assert [(each.text, each.score) for each in ranked] == [
        (candidates[each.index], scores[each.index]) for each in ranked
    ]
    assert bert.rank(context, candidates, top=2) == ranked[:2]
    assert bert.rank(context, []) == []


def test_extreme_scores_stay_distinct_and_finite(tiny_folder: Folder) -> None:
    reranker = make_reranker(tiny_folder("bert"))
    candidates = ["yes", "no", "a taxi to the north"]
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("error")
        reranker.heads["selection"].bias.fill_(20.0)
        assert len(set(reranker.score(["hello"], candidates))) == 3
        reranker.heads["selection"].bias.fill_(-2000.0)
        assert reranker.score(["hello"], candidates).tolist() == [0, 0, 0]


# ---- errors


def test_nothing_to_score(bert: Reranker) -> None:
    assert bert.score_all([]) == []
    assert bert.score(["hello"], []).tolist() == []
    first, second, third = bert.score_all([(["hello"], []), (["hello"], ["yes"]), (["hello"], [])])
    assert [len(first), len(second), len(third)] == [0, 1, 0]


@pytest.mark.parametrize(
    ("context", "candidates", "error", "message"),
    [
        ([], ["yes"], ValueError, "a conversation needs at least one turn"),
        ("hello", ["yes"], ValueError, r"not a string: pass a single turn as \[text\]"),
        (["hello"], "yes", ValueError, r"candidates are a list of texts: give a single one as \[text\]"),
        ([3], ["yes"], TypeError, "a turn is a string or a Turn, not int"),
    ],
)
def test_invalid_queries_are_rejected(
    context: list[str], candidates: list[str], error: type[Exception], message: str, bert: Reranker
) -> None:
    with pytest.raises(error, match=message):
        bert.score(context, candidates)


def test_untrained_task_is_named(tiny_folder: Folder) -> None:
    reranker = make_reranker(tiny_folder("bert"), tasks=("selection", "search"))
    with pytest.raises(ModelError, match="was trained without deletion"):
        reranker.logits("deletion", [])


def test_backbone_without_a_first_token_is_rejected(tiny_folder: Folder) -> None:
    with pytest.raises(ModelError, match="no token such as"):
        make_reranker(tiny_folder("gpt2")).score(["hello"], ["yes"])


# ---- saved and loaded


def test_saved_and_loaded(tiny_folder: Folder, tmp_path: Path) -> None:
    reranker = make_reranker(tiny_folder("bert"), max_length=40)
    reranker.window = 7
    before = dict(reranker.backbone.tokenizer.settings)
    reranker.save(tmp_path / "model", card="# A re-ranker\n")
    assert reranker.backbone.tokenizer.settings == before
    loaded = turnwise.Reranker.load(tmp_path / "model", device="cpu")
    assert (loaded.max_length, loaded.window, loaded.backbone.max_length) == (40, 7, LONGEST)
    assert not loaded.training
    assert (tmp_path / "model" / "README.md").read_text() == "# A re-ranker\n"
    assert list(loaded.heads) == list(TASKS)
    assert loaded.state_dict().keys() == reranker.state_dict().keys()
    for key, value in loaded.state_dict().items():
        assert torch.equal(value, reranker.state_dict()[key]), key
    same(loaded.score_all(questions()), reranker.score_all(questions()))

    # and once more, from weights that lie in memory as the CPU likes them
    loaded.save(tmp_path / "again")
    again = Reranker.load(tmp_path / "again", device="cpu")
    assert [scores.tolist() for scores in again.score_all(questions())] == [
        scores.tolist() for scores in loaded.score_all(questions())
    ]


def test_only_trained_heads_are_saved(tiny_folder: Folder, tmp_path: Path) -> None:
    make_reranker(tiny_folder("bert"), tasks=("search", "selection")).save(tmp_path)
    assert set(Reranker.load(tmp_path).heads) == {"search", "selection"}
    with pytest.raises(ModelError, match="without a head for selection cannot be saved"):
        make_reranker(tiny_folder("bert"), tasks=("search",)).save(tmp_path)


def test_saving_over_an_encoder(tiny_folder: Folder, tmp_path: Path) -> None:
    """And one that was a re-ranker's."""
    encoder = Encoder.load(tiny_folder("bert"), pooling="cls-mlp")
    encoder.normalise = True
    encoder.save(tmp_path)
    with pytest.raises(ModelError, match="is not a turnwise re-ranker"):
        Reranker.load(tmp_path)
    reranker = make_reranker(tiny_folder("bert"))
    reranker.save(tmp_path)
    assert is_reranker(tmp_path)
    expected = reranker.score(["hello"], ["yes", "no"])
    same([Reranker.load(tmp_path).score(["hello"], ["yes", "no"])], [expected])
    with pytest.raises(ModelError, match="holds a re-ranker, not an encoder"):
        Encoder.load(tmp_path)
    encoder.save(tmp_path)
    assert not is_reranker(tmp_path)
    same([Encoder.load(tmp_path).encode(["hello"])], [encoder.encode(["hello"])])


# ---- beside sentence-transformers


def pairs(queries: list[tuple[list[str], list[str]]]) -> list[tuple[str, str]]:
    return [pair_text(context, candidate) for context, candidates in queries for candidate in candidates]


@pytest.mark.parametrize("family", [*FAMILIES, *OTHERS])
@pytest.mark.parametrize("max_length", [None, 32])
def test_cross_encoder_gives_the_same_scores(
    family: str, max_length: int | None, tiny_folder: Folder, tmp_path: Path
) -> None:
    reranker = make_reranker(tiny_folder(family), max_length)
    reranker.save(tmp_path)
    queries = questions()
    lengths = [len(each.tokens) for each in reranker.build_inputs(queries)]
    assert max(lengths) == reranker.max_length == (max_length or LONGEST) and min(lengths) < 10
    expected = np.concatenate(reranker.score_all(queries))
    assert expected.std() > 1e-2
    same([CrossEncoder(str(tmp_path), device="cpu").predict(pairs(queries))], [expected])
    if family in ("bert", "electra"):
        settings = json.loads((tmp_path / "tokenizer_config.json").read_text())
        assert "token_type_ids" in settings["model_input_names"]
