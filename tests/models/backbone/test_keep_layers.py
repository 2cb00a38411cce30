"""A backbone without its upper layers against the hidden states of the full model."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch.testing import assert_close
from transformers import AlbertConfig, AlbertModel, PreTrainedModel

from tests.helpers.families import FAMILIES, WORDS, mean_states, padded_output, plain_model, sequences
from turnwise.core.dialogue import Dialogue, Turn
from turnwise.core.errors import ModelError, RecipeError
from turnwise.corpus.storage.corpus import Corpus, read_corpus
from turnwise.corpus.storage.writing import StoreWriter
from turnwise.models.backbone import backbone as backbone_module
from turnwise.models.backbone.load import load_backbone
from turnwise.models.backbone.ragged import Tokens
from turnwise.models.backbone.stream import TokenStream
from turnwise.models.backbone.transformers_backbone import TransformersBackbone
from turnwise.models.encoder import Encoder
from turnwise.training.loop import train
from turnwise.training.recipe import Recipe, load_recipe

Folder = Callable[[str], Path]

LENGTHS = (7, 40, 1, 12, 3)

#: How many layers the tiny models have, where it is not two.
DEPTH = {"modernbert": 3}

#: The norm after the last layer; in the other families each layer ends with its own.
LAST_NORM = {"gpt2": "ln_f", "modernbert": "final_norm", "t5": "encoder.final_layer_norm"}

CUTS = [(family, count) for family in FAMILIES for count in range(1, DEPTH.get(family, 2) + 1)]


def below(model: PreTrainedModel, count: int, parts: list[Tokens]) -> torch.Tensor:
    """The mean over a sequence's tokens of the `count`-th layer's states, on a padded batch (sequences, hidden)."""
    output = padded_output(model, parts)
    depth = len(output.hidden_states) - 1
    if count == depth:
        states = output.last_hidden_state
    else:
        norm = LAST_NORM.get(model.config.model_type)
        states = output.hidden_states[count] if norm is None else model.get_submodule(norm)(output.hidden_states[count])
    return mean_states(states, parts)


@pytest.mark.parametrize(("family", "count"), CUTS)
def test_vectors_equal_the_states_of_the_last_kept_layer(
    family: str, count: int, tiny_folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backbone_module, "BUCKET_TOKENS", 40)
    encoder = Encoder.load(tiny_folder(family), device="cpu", pooling="mean")
    encoder.backbone.keep_layers(count)
    parts = sequences(LENGTHS)
    with torch.no_grad():
        actual, expected = encoder(TokenStream.of(parts)), below(plain_model(tiny_folder(family)), count, parts)
    assert encoder.backbone.layers == count
    assert_close(actual, expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("family", FAMILIES)
def test_kept_layers_survive_saving(family: str, tiny_folder: Folder, tmp_path: Path) -> None:
    """For us and for transformers itself, whose model of that folder has as many layers and gives the same."""
    count = DEPTH.get(family, 2) - 1
    encoder = Encoder.load(tiny_folder(family), device="cpu", pooling="mean")
    encoder.backbone.keep_layers(count)
    place = tmp_path / family  # plain_model goes by the name
    encoder.save(place)
    stored, whole = load_file(place / "model.safetensors"), load_file(tiny_folder(family) / "model.safetensors")
    assert 0 < len(stored) < len(whole)
    assert all(torch.equal(value, whole[name]) for name, value in stored.items())
    again = Encoder.load(place, device="cpu")
    assert again.backbone.layers == count
    parts = sequences(LENGTHS, seed=1)
    with torch.no_grad():
        before, after = encoder(TokenStream.of(parts)), again(TokenStream.of(parts))
        own = below(plain_model(place), count, parts)
    assert torch.equal(before, after)
    assert_close(after, own, atol=1e-5, rtol=1e-5)
    # and once more, from there
    again.backbone.keep_layers(1)
    with torch.no_grad():
        assert_close(
            again(TokenStream.of(parts)), below(plain_model(tiny_folder(family)), 1, parts), atol=1e-5, rtol=1e-5
        )


@pytest.mark.parametrize("count", [-5, 0, 4])
def test_more_layers_than_present_are_rejected(count: int, tiny_folder: Folder) -> None:
    backbone = load_backbone(tiny_folder("modernbert"))
    with pytest.raises(ModelError, match=f"layers={count}: .* has 3 here, keep 1 to 3"):
        backbone.keep_layers(count)
    assert backbone.layers == 3


def test_layers_that_share_their_weights_cannot_be_removed() -> None:
    config = AlbertConfig(vocab_size=9, embedding_size=8, hidden_size=8, num_attention_heads=2, intermediate_size=8)
    backbone = TransformersBackbone(AlbertModel(config), None)
    with pytest.raises(ModelError, match="cannot find the transformer layers of albert"):
        backbone.keep_layers(2)


@pytest.fixture(scope="module")
def talks(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    """Twelve dialogues of the tiny models' words."""
    place = tmp_path_factory.mktemp("talks") / "store"
    with StoreWriter(place) as writer:
        for number in range(12):
            texts = [
                " ".join(WORDS[(5 * number + 3 * turn + word) % len(WORDS)] for word in range(4)) for turn in range(4)
            ]
            writer.write(Dialogue(f"d{number}", tuple(Turn("user", text) for text in texts)))
        writer.commit({})
    return read_corpus(place)


def make_recipe(start: Path, *changes: str) -> Recipe:
    small = [f"backbone={start}", "batch_size=6", "steps=3", "max_length=16", "learning_rate=1e-2", "windows=[1, 2]"]
    return load_recipe("wmdc", [*small, *changes])


def test_recipe_trains_kept_unfrozen_layers(talks: Corpus, tiny_folder: Folder, tmp_path: Path) -> None:
    """Of three layers two are kept, of which the lower is frozen: both are counted from the bottom."""
    start = tiny_folder("modernbert")
    train(make_recipe(start, "layers=2", "frozen_layers=1", "frozen_embeddings=true"), talks, tmp_path / "run")
    before, after = load_file(start / "model.safetensors"), load_file(tmp_path / "run" / "model.safetensors")
    assert {name for name in before if name not in after} == {name for name in before if name.startswith("layers.2.")}
    moved = {name for name, value in after.items() if not torch.equal(value, before[name])}
    assert not any(name.startswith(("embeddings.", "layers.0.")) for name in moved)
    assert any(name.startswith("layers.1.") for name in moved)
    assert Encoder.load(tmp_path / "run", device="cpu").backbone.layers == 2


def test_run_with_fewer_layers_starts_and_resumes(talks: Corpus, tiny_folder: Folder, tmp_path: Path) -> None:
    start = tiny_folder("bert")
    cut = Encoder.load(start, device="cpu", pooling="mean")
    cut.backbone.keep_layers(1)
    texts = ["hello where is the hotel", "yes please"]
    trained = train(make_recipe(start, "layers=1", "learning_rate=1e-50"), talks, tmp_path / "still")
    assert_close(trained.encode(texts), cut.encode(texts))
    moving = make_recipe(start, "layers=1", "checkpoint_every=2")
    train(moving, talks, tmp_path / "whole")

    def stop(what: str, done: int, total: int | None = None) -> None:
        if what.startswith("training") and done == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(moving, talks, tmp_path / "resumed", progress=stop)
    train(moving, talks, tmp_path / "resumed", resume=True)
    whole, resumed = (load_file(tmp_path / name / "model.safetensors") for name in ("whole", "resumed"))
    assert whole.keys() == resumed.keys()
    assert all(torch.equal(whole[name], resumed[name]) for name in whole)


def test_too_many_layers_in_a_recipe_are_rejected(talks: Corpus, tiny_folder: Folder, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="layers=3: bert has 2 here, keep 1 to 2"):
        train(make_recipe(tiny_folder("bert"), "layers=3"), talks, tmp_path / "run")
    with pytest.raises(RecipeError, match="layers must be 1 or more, got 0"):
        make_recipe(tiny_folder("bert"), "layers=0")
