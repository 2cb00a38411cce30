"""Pairs of messages and responses, several objectives of one kind, and objectives that read some stores only."""

from pathlib import Path

import numpy as np
import pytest
import torch

from tests.helpers.tiny import backbone, recipe, set_up_run
from turnwise.core.dialogue import Dialogue, Turn
from turnwise.core.errors import RecipeError, TurnwiseError
from turnwise.corpus.storage.corpus import Corpus, read_corpus
from turnwise.corpus.storage.writing import StoreWriter
from turnwise.objectives.losses import symmetric_nt_xent
from turnwise.objectives.pairs import Pairs
from turnwise.training.loop import train
from turnwise.training.recipe import load_recipe


def dialogue(*texts: str) -> Dialogue:
    return Dialogue("1", tuple(Turn("user", text) for text in texts))


def test_a_message_is_the_end_of_what_was_said() -> None:
    turns = dialogue("one", "two", "three", "four five", "six")
    assert [example.windows for example in Pairs(history=2).examples(turns)] == [
        ((0, 1), (1, 2)),
        ((0, 2), (2, 3)),
        ((1, 3), (3, 4)),
        ((2, 4), (4, 5)),
    ]
    assert [example.windows[1] for example in Pairs(minimum_words=1).examples(turns)] == [(3, 4)]


def test_lengths_of_messages_are_drawn_in_every_step() -> None:
    setup = set_up_run(recipe("mixture", "objectives.histories.batch_size=64"))
    loader = next(each for each in setup.loaders if each.name == "histories")
    batch = loader.batch(0)
    separator = setup.encoder.backbone.tokenizer.sep_token_id
    turns = []
    for step in range(4):
        prepared = loader.prepare(step)
        lengths = prepared.sequences.lengths
        tokens = np.split(prepared.sequences.tokens, np.cumsum(lengths)[:-1])
        turns.append([int((sequence == separator).sum()) for sequence in tokens[: prepared.rows]])
        assert all((sequence == separator).sum() == 1 for sequence in tokens[prepared.rows :])
    assert len(batch) == 64
    drawn = np.concatenate(turns)
    assert set(drawn.tolist()) == {1, 2, 3}
    # responses with three turns before them have each length a third of the time; the first ones have fewer
    assert 0.2 < np.mean(drawn == 3) < 0.4
    again = loader.prepare(1)
    assert again.sequences.tokens.tolist() == loader.prepare(1).sequences.tokens.tolist()


def test_equal_texts_are_no_negatives() -> None:
    generator = torch.Generator().manual_seed(0)
    vectors = torch.randn(2, 4, 6, generator=generator)
    identities = torch.tensor([[1, 2, 3, 4], [5, 6, 5, 8]])
    same = torch.zeros(4, 4, dtype=torch.bool)
    same[0, 2] = same[2, 0] = True
    heads = torch.nn.Identity()
    masked, metrics = Pairs(temperature=0.5).loss(vectors, {"identities": identities}, heads)
    assert float(metrics["equal_texts"]) == 1
    assert masked == symmetric_nt_xent(*vectors, 0.5, same=same)
    plain, _ = Pairs(temperature=0.5, mask_equal=False).loss(vectors, {"identities": identities}, heads)
    assert plain == symmetric_nt_xent(*vectors, 0.5) != masked


# ---- stores of objectives


def write(place: Path, reader: str, *dialogues: Dialogue) -> None:
    with StoreWriter(place) as writer:
        for each in dialogues:
            writer.write(each)
        writer.commit({"reader": reader})


@pytest.fixture
def two_stores(tmp_path: Path) -> Corpus:
    first = [dialogue(f"first {number}", f"answer {number}") for number in range(5)]
    second = [dialogue(f"second {number}", f"reply {number}", "thanks") for number in range(7)]
    write(tmp_path / "one", "jsonl", *first)
    write(tmp_path / "two", "table", *second)
    return read_corpus(tmp_path / "one", tmp_path / "two")


def from_stores(tmp_path: Path, stores: str) -> Path:
    path = tmp_path / "recipe.yaml"
    path.write_text(
        f"backbone: {backbone()}\nsteps: 2\nbatch_size: 4\nobjectives:\n  pairs: {{}}\n"
        f"  some: {{objective: pairs, stores: {stores}}}\n"
    )
    return path


@pytest.mark.parametrize(("stores", "numbers"), [("[two]", [1]), ("[table]", [1]), ("[one, table]", [0, 1])])
def test_an_objective_reads_the_stores_it_names(
    stores: str, numbers: list[int], tmp_path: Path, two_stores: Corpus
) -> None:
    run = load_recipe(from_stores(tmp_path, stores))
    assert run.selected_stores(two_stores.stores) == {"some": numbers}
    setup = set_up_run(run, two_stores, tmp_path / "cache")
    everything, some = (
        {tuple(window) for window in loader.examples.rows(np.arange(len(loader.examples)))[0][:, 1].tolist()}
        for loader in setup.loaders
    )
    # the stores have 10 and 21 turns; a response is every turn but a dialogue's first
    assert len(everything) == 5 + 14
    assert some == {window for window in everything if int(window[0] >= 10) in numbers}
    train(run, two_stores, tmp_path / "run")


@pytest.mark.parametrize(("options", "numbers"), [("[one]", [1]), ("[table], stores: [one, two]", [0])])
def test_an_objective_reads_no_store_that_it_excludes(
    options: str, numbers: list[int], tmp_path: Path, two_stores: Corpus
) -> None:
    path = tmp_path / "recipe.yaml"
    path.write_text(f"backbone: {backbone()}\nobjectives: {{pairs: {{exclude_stores: {options}}}}}\n")
    assert load_recipe(path).selected_stores(two_stores.stores) == {"pairs": numbers}


@pytest.mark.parametrize(
    ("excluded", "message"),
    [
        ("[three]", r"objectives\.pairs\.exclude_stores: no store or reader is named three; this run reads one, two"),
        ("[one, two]", r"objectives\.pairs: no store is left to read, of one, two\. Add one with --corpus"),
    ],
)
def test_exclusions_that_leave_or_name_nothing_are_reported(
    excluded: str, message: str, tmp_path: Path, two_stores: Corpus
) -> None:
    path = tmp_path / "recipe.yaml"
    path.write_text(f"backbone: {backbone()}\nobjectives: {{pairs: {{exclude_stores: {excluded}}}}}\n")
    with pytest.raises(RecipeError, match=message):
        load_recipe(path).selected_stores(two_stores.stores)


def test_unknown_stores_are_reported(tmp_path: Path, two_stores: Corpus) -> None:
    run = load_recipe(from_stores(tmp_path, "[two, three]"))
    with pytest.raises(RecipeError, match="no store or reader is named three; this run reads one, two"):
        set_up_run(run, two_stores, tmp_path / "cache")


def test_recipes_name_an_objective_that_is_used_twice() -> None:
    loaded = recipe("mixture")
    kinds = {name: type(entry.objective).__name__ for name, entry in loaded.entries.items()}
    assert kinds == {"labelled": "Labelled", "pairs": "Pairs", "histories": "Pairs", "anchor": "Anchor"}
    changed = recipe("mixture", "history=2").entries
    assert (changed["pairs"].objective, changed["histories"].objective) == (Pairs(history=2), Pairs(history=2))
    with pytest.raises(TurnwiseError, match=r"objectives\.histories\.history"):
        recipe("mixture", "objectives.histories.history=many")
    with pytest.raises(TurnwiseError, match="has no objective 'pear'"):
        recipe("mixture", "objectives.histories.objective=pear")
    with pytest.raises(RecipeError, match="train the same head"):
        recipe("ums", "objectives.again.objective=insertion")
