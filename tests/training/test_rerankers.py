"""Runs that train a re-ranker: initialisation, saved heads, and probing."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
import torch

from tests.helpers.tiny import backbone, corpus, recipe, set_up_run
from turnwise import Reranker, train
from turnwise.core.dialogue import SYSTEM, USER, Dialogue, Turn
from turnwise.core.errors import DatasetError, RecipeError, TurnwiseError
from turnwise.corpus.storage.corpus import read_corpus
from turnwise.corpus.storage.writing import StoreWriter
from turnwise.evaluation.probe import make_probe

CONTEXT, CANDIDATES = ["where is my parcel ?", "which one ?"], ["thank you", "the red one", "yes"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("run") / "reranker"
    train(recipe("ums", "steps=3", "batch_size=4"), corpus(), place)
    return place


def test_a_run_saves_a_reranker_with_all_heads(trained: Path) -> None:
    reranker = Reranker.load(trained, device="cpu")
    assert sorted(reranker.heads) == ["deletion", "insertion", "search", "selection"]
    assert (reranker.window, reranker.max_length) == (5, 128)
    assert "Reranker.load" in (trained / "README.md").read_text()


def test_training_continues_from_a_reranker_with_its_heads(trained: Path, tmp_path: Path) -> None:
    """The weights are contiguous, and a step with learning rate 0 changes no score."""
    again = recipe("ums", f"backbone={trained}", "steps=1", "batch_size=4", "learning_rate=1e-50")
    setup = set_up_run(again)
    assert all(parameter.is_contiguous() for parameter in setup.encoder.parameters())
    saved = Reranker.load(trained, device="cpu")
    for part in setup.parts:
        assert torch.equal(part.heads[-1].weight, saved.heads[part.objective.task].weight)
    train(again, corpus(), tmp_path / "again")
    scores = [Reranker.load(place, device="cpu").score(CONTEXT, CANDIDATES) for place in (trained, tmp_path / "again")]
    assert scores[0] == pytest.approx(scores[1], abs=1e-6)


def test_an_encoder_can_be_trained_from_a_reranker(trained: Path, tmp_path: Path) -> None:
    encoder = train(recipe("dse", f"backbone={trained}", "steps=1"), corpus(), tmp_path / "encoder")
    assert torch.isfinite(torch.from_numpy(encoder.encode(CANDIDATES))).all()


def test_a_corpus_without_long_contexts_is_reported(tmp_path: Path) -> None:
    with StoreWriter(tmp_path / "store") as writer:
        for number in range(6):
            writer.write(
                Dialogue(
                    str(number), (Turn(USER, f"where is parcel {number} ?"), Turn(SYSTEM, f"it is at gate {number}"))
                )
            )
        writer.commit({})
    short = read_corpus(tmp_path / "store")
    with pytest.raises(TurnwiseError, match=r"--set objectives\.insertion=false removes it"):
        train(recipe("ums", "steps=1"), short, tmp_path / "whole")
    alone = [f"objectives.{task}=false" for task in ("insertion", "deletion", "search")]
    assert list(train(recipe("ums", "steps=1", *alone), short, tmp_path / "alone").heads) == ["selection"]


# ---- the probe


class InOrder:
    """Ranks candidates in their order."""

    def score(self, context: Sequence[str], candidates: Sequence[str]) -> npt.NDArray[np.float64]:
        return -np.arange(len(candidates), dtype=np.float64)


def douban(folder: Path) -> Path:
    """Write validation contexts with two candidates each, as in Douban; the right one is first in half of them."""
    (folder / "douban").mkdir(parents=True)
    lines = []
    for number in range(4):
        context = f"what is {number} ?\ta number , why ?"
        pair = [f"1\t{context}\tjust asking {number}", f"0\t{context}\tno idea {number}"]
        lines += pair if number % 2 else pair[::-1]
    for name in ("train.txt", "dev.txt"):
        (folder / "douban" / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
    (folder / "douban" / "test.txt").write_text("", encoding="utf-8")
    return folder


def test_the_probe_has_the_metric_of_keep_best_for_any_number_of_candidates(tmp_path: Path) -> None:
    actual = make_probe(douban(tmp_path), reranks=True)(InOrder())
    assert actual["responses R2@1"] == 50
    assert actual["responses MRR"] == 75
    assert recipe("ums").keep_best in actual


def test_missing_probe_data_is_reported_before_training(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="no data for probing a re-ranker"):
        make_probe(tmp_path, reranks=True)


def test_the_best_model_by_the_probe_is_kept(tmp_path: Path) -> None:
    probe = make_probe(douban(tmp_path / "data"), reranks=True)
    train(recipe("ums", "steps=2", "batch_size=4", "probe_every=1"), corpus(), tmp_path / "run", probe=probe)
    assert sorted(Reranker.load(tmp_path / "run" / "best", device="cpu").heads) == [
        "deletion",
        "insertion",
        "search",
        "selection",
    ]


def test_probe_every_is_checked() -> None:
    assert recipe("ums", "probe_every=epoch").probe_every == "epoch"
    for wrong in ("-3", "sometimes"):
        with pytest.raises(RecipeError, match="probe_every"):
            recipe("ums", f"probe_every={wrong}")


def test_the_backbone_is_not_a_reranker() -> None:
    with pytest.raises(TurnwiseError, match="is not a turnwise re-ranker"):
        Reranker.load(backbone())
