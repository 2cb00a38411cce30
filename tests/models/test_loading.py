"""Loading and wrapping models; fingerprints distinguish models."""

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from safetensors.torch import load_file
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import StaticEmbedding
from transformers import AutoModel

from tests.helpers import families
from turnwise.core.dialogue import Turn
from turnwise.core.errors import ModelError
from turnwise.models.encoder import Encoder
from turnwise.models.loading import load_model, postprocess_model, wrap_model

HISTORY = ["how can I help?", "where is my parcel, please?"]


def test_sentence_transformers_adapter_equals_our_encoder(tiny_folder: Callable[[str], Path], tmp_path: Path) -> None:
    Encoder.load(tiny_folder("bert"), device="cpu").save(tmp_path / "model")
    ours, theirs = load_model(str(tmp_path / "model")), load_model(f"sentence-transformers:{tmp_path / 'model'}")
    assert ours.encoder is not None and theirs.encoder is not None
    for inputs in (["good morning", "a parcel of books"], [HISTORY, [Turn("user", "hello there")]]):
        for length in (None, 5):
            expected = ours.encoder.encode(inputs, normalise=True, max_length=length)
            actual = theirs.encoder.encode(inputs, normalise=True, max_length=length)
            np.testing.assert_allclose(actual, expected, atol=1e-5)


def test_function_gets_texts_and_its_result_is_checked() -> None:
    seen: list[list[str]] = []

    def function(texts: list[str]) -> np.ndarray:
        seen.append(texts)
        return np.ones((len(texts), 3))

    model = wrap_model(function)
    assert model.encoder is not None and model.fingerprint is None and model.trainable is None
    assert model.encoder.encode(["a", HISTORY], normalise=True).shape == (2, 3)
    assert seen == [["a", "how can I help?\nwhere is my parcel, please?"]]
    for wrong in (np.ones(3), np.ones((1, 3)), np.full((2, 3), np.nan)):
        with pytest.raises(ModelError, match="expected"):
            wrap_model(lambda texts, wrong=wrong: wrong).encoder.encode(["a", "b"])  # type: ignore[union-attr, misc]


def test_function_is_loaded_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "some_encoder.py").write_text(
        "import numpy as np\ndef encode(texts):\n    return np.ones((len(texts), 2))\n"
    )
    monkeypatch.chdir(tmp_path)
    model = load_model("some_encoder:encode")
    assert model.encoder is not None and model.encoder.encode(["a"]).tolist() == [[1, 1]]
    with pytest.raises(ModelError, match="no 'missing'"):
        load_model("some_encoder:missing")
    with pytest.raises(ModelError, match="cannot be imported"):
        load_model("no_such_module:encode")
    with pytest.raises(ModelError, match="is not a model"):
        wrap_model(3)
    with pytest.raises(ModelError, match="cannot load 'no-such-model'"):
        load_model("sentence-transformers:no-such-model")


def test_fingerprints_distinguish_models(tiny_folder: Callable[[str], Path]) -> None:
    folder = str(tiny_folder("bert"))
    same, again, pooled = load_model(folder), load_model(folder), load_model(folder, "cls")
    assert same.fingerprint == again.fingerprint != pooled.fingerprint
    other = Encoder.load(folder, device="cpu")
    next(other.parameters()).data[0] += 1
    assert wrap_model(other).fingerprint != same.fingerprint
    texts = [f"{first} {second}" for first in families.WORDS[:7] for second in families.WORDS[:7]]
    assert postprocess_model(same, "whitening", texts).fingerprint not in (same.fingerprint, None)
    assert (
        postprocess_model(same, "whitening", texts[:30]).fingerprint
        != postprocess_model(same, "whitening", texts).fingerprint
    )


@pytest.mark.parametrize("family", ["bert", "roberta", "mpnet"])
def test_model_without_pooler_has_a_stable_fingerprint(
    family: str, tiny_folder: Callable[[str], Path], tmp_path: Path
) -> None:
    """An unused layer that is missing must not be random, or the model would differ at every load."""
    folder = tmp_path / "plain"
    shutil.copytree(tiny_folder(family), folder)
    AutoModel.from_pretrained(folder, add_pooling_layer=False).save_pretrained(folder)
    assert not [name for name in load_file(folder / "model.safetensors") if "pooler" in name]
    fingerprint = load_model(str(folder)).fingerprint
    assert load_model(str(folder)).fingerprint == fingerprint
    Encoder.load(folder, device="cpu").save(tmp_path / "saved")
    assert load_model(str(tmp_path / "saved")).fingerprint == fingerprint
    # a layer of our own, which is used, does count
    pooled = Encoder.load(folder, device="cpu", pooling="cls-mlp")
    assert pooled.pooler is not None
    before = wrap_model(pooled).fingerprint
    pooled.pooler.linear.bias.data += 1
    assert wrap_model(pooled).fingerprint != before


def test_encoding_does_not_change_a_fingerprint(tiny_folder: Callable[[str], Path]) -> None:
    """Tokenizers keep the truncation and padding of their last use, which must not count."""
    encoder = Encoder.load(tiny_folder("bert"), device="cpu")
    encoder.backbone.tokenizer.backend_tokenizer.enable_truncation(7)
    encoder.backbone.tokenizer.backend_tokenizer.enable_padding()
    before = wrap_model(encoder).fingerprint
    encoder.encode(["good morning"])
    assert wrap_model(encoder).fingerprint == before


def test_static_sentence_transformers_model_is_wrapped(tiny_folder: Callable[[str], Path]) -> None:
    """It has no tokenizer of transformers', and no length."""
    tokenizer = Encoder.load(tiny_folder("bert"), device="cpu").backbone.tokenizer
    weights = np.random.default_rng(0).normal(size=(len(tokenizer), 4)).astype(np.float32)
    model = SentenceTransformer(
        modules=[StaticEmbedding(tokenizer.backend_tokenizer, embedding_weights=weights)], device="cpu"
    )
    encoder = wrap_model(model).encoder
    assert encoder is not None
    vectors = encoder.encode([HISTORY, "good morning", " ".join(HISTORY)], normalise=True, max_length=5)
    np.testing.assert_allclose(vectors[0], vectors[2], atol=1e-6)
    np.testing.assert_allclose(vectors[1], model.encode(["good morning"], normalize_embeddings=True)[0], atol=1e-6)
