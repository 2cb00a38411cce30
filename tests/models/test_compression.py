"""Semantic compression against Eq. 5 in plain NumPy, for every source of templates, in memory and on disk."""

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.helpers.tiny import backbone
from turnwise import Encoder, Turn
from turnwise.core.dialogue import SYSTEM, USER, Slot
from turnwise.core.errors import CorpusError, ModelError
from turnwise.core.files import write_tensors
from turnwise.corpus.slots.detectors import BuiltInDetector
from turnwise.models.backbone.stream import PoolerLayer
from turnwise.models.compression import CompressedEncoder, Compression, mix_vectors
from turnwise.models.encoder import encoder_fingerprint
from turnwise.models.loading import load_model, wrap_model

TEMPLATES = ("wake me at {SLOT}", "play {SLOT}", "what can you do", "tell me the {SLOT} weather")
SEVEN = Turn(USER, "wake me at 7 pm", slots=(Slot("time", "7 pm", 11, 15),))


def unit(vectors: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def make_encoder(layer: bool, **settings: object) -> tuple[CompressedEncoder, npt.NDArray[np.float32]]:
    """An encoder that compresses, and its templates' vectors, restated."""
    encoder = Encoder.load(backbone())
    encoder.backbone.add_tokens(("{SLOT}",))
    torch.manual_seed(3)
    pooler = PoolerLayer(encoder.hidden) if layer else None
    vectors = expected_templates(encoder, list(TEMPLATES), pooler)
    weights = encoder.weights_fingerprint()
    compression = Compression(TEMPLATES, torch.from_numpy(vectors), pooler, encoder_weights=weights, **settings)  # type: ignore[arg-type]
    return CompressedEncoder(encoder, compression), vectors


def expected_templates(encoder: Encoder, texts: list[str], layer: PoolerLayer | None) -> npt.NDArray[np.float32]:
    """t′ = tanh(Wt + b) of length 1, or t itself of length 1."""
    vectors = encoder.encode(texts, normalise=False)
    if layer is not None:
        weight, bias = (value.detach().numpy() for value in (layer.linear.weight, layer.linear.bias))
        vectors = np.tanh(vectors @ weight.T + bias)
    return unit(vectors)


@pytest.mark.parametrize("layer", [False, True])
@pytest.mark.parametrize("share", [0.0, 0.2, 1.0])
@pytest.mark.parametrize("source", ["given", "detected", "retrieved"])
def test_vectors_follow_the_equation(layer: bool, share: float, source: str) -> None:
    detector = BuiltInDetector()
    encoder, pool = make_encoder(layer, template_weight=share, source=source, detector=detector.to_json())
    plain = encoder.encoder
    own = expected_templates(plain, [SEVEN.text, "what can you do"], None)
    if source == "retrieved":
        templates = pool[(own @ pool.T).argmax(1)]
    else:
        templates = expected_templates(plain, ["wake me at {SLOT}", "what can you do"], encoder.compression.layer)
    if source == "detected":
        assert [slot.value for slot in detector.find(SEVEN.text)] == ["7 pm"]
    expected = share * templates + (1 - share) * own
    actual = encoder.encode([[SEVEN], "what can you do"], normalise=False)
    np.testing.assert_allclose(actual, expected, atol=2e-6)
    np.testing.assert_allclose(encoder.encode([[SEVEN], "what can you do"], normalise=True), unit(expected), atol=2e-6)


def test_every_turn_of_a_conversation_becomes_its_template() -> None:
    encoder, _ = make_encoder(False, template_weight=1.0, source="given")
    queries = [Turn(SYSTEM, "when shall i"), SEVEN]
    templates = [Turn(SYSTEM, "when shall i"), Turn(USER, "wake me at {SLOT}")]
    actual = encoder.encode([queries], normalise=False)
    np.testing.assert_allclose(actual, unit(encoder.encoder.encode([templates], normalise=False)), atol=2e-6)


@settings(deadline=None)
@given(st.floats(0, 1), st.integers(1, 6), st.integers(0, 2**31))
def test_mixture_lies_between_its_parts(share: float, rows: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    one, other = (unit(random.normal(size=(rows, 5)).astype(np.float32)) for _ in range(2))
    actual = mix_vectors(one, other, share)
    np.testing.assert_allclose(
        np.linalg.norm(actual - one, axis=1), share * np.linalg.norm(other - one, axis=1), atol=1e-5
    )
    np.testing.assert_allclose(mix_vectors(one, one, share), one, atol=1e-6)


@pytest.mark.parametrize("layer", [False, True])
def test_compression_is_saved_with_the_model_and_off_by_default(tmp_path: Path, layer: bool) -> None:
    encoder, _ = make_encoder(layer, template_weight=0.35, source="detected", detector=BuiltInDetector().to_json())
    inputs = [[SEVEN], "play some jazz"]
    compressed = encoder.encode(inputs)
    encoder.save(tmp_path / "model")
    again = CompressedEncoder.load(tmp_path / "model", device="cpu")
    np.testing.assert_array_equal(again.encode(inputs), compressed)
    plain = Encoder.load(tmp_path / "model", device="cpu")
    np.testing.assert_array_equal(plain.encode(inputs), encoder.encoder.encode(inputs))
    loaded = load_model(tmp_path / "model")
    assert set(loaded.variants) == {"given", "detected", "retrieved"}
    assert loaded.fingerprint == encoder_fingerprint(plain)
    whole = load_model(str(tmp_path / "model"), compressed=True)
    assert whole.name.endswith(", compressed") and whole.trainable is None and not whole.variants
    assert whole.backbones == loaded.backbones
    assert whole.fingerprint == wrap_model(again).fingerprint != loaded.fingerprint
    identity = again.identify()
    assert identity != plain.identify()
    again.compression.set(template_weight=0.1)
    assert wrap_model(again).fingerprint != whole.fingerprint
    assert again.identify() != identity


def test_invalid_settings_are_rejected(tmp_path: Path) -> None:
    compression = make_encoder(False)[0].compression
    for share in (-0.1, 1.1, float("nan")):
        with pytest.raises(ModelError, match="must be between 0"):
            compression.set(template_weight=share)
    with pytest.raises(ModelError, match="choose from given, retrieved"):
        compression.set(source="detected")
    with pytest.raises(ModelError, match="guessed"):
        compression.set(source="guessed")  # type: ignore[arg-type]
    assert (compression.template_weight, compression.source) == (0.2, "retrieved")
    Encoder.load(backbone()).save(tmp_path / "plain")
    with pytest.raises(ModelError, match="trained on templates"):
        CompressedEncoder.load(tmp_path / "plain")
    with pytest.raises(ModelError, match="cannot be compressed"):
        load_model(str(tmp_path / "plain"), "cls", compressed=True)


@given(st.integers(1, 12), st.integers(0, 9), st.integers(1, 5), st.integers(0, 2**31))
def test_nearest_template_across_blocks(templates: int, utterances: int, block: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    pool, queries = (unit(random.normal(size=(count, 4)).astype(np.float32)) for count in (templates, utterances))
    compression = Compression([str(number) for number in range(templates)], torch.from_numpy(pool))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("turnwise.models.compression._SIMILARITIES", block * templates)
        actual = compression.retrieve(queries)
    np.testing.assert_array_equal(actual, pool[(queries @ pool.T).argmax(1)] if utterances else np.empty((0, 4)))


def test_detector_is_created_on_first_use(tmp_path: Path) -> None:
    """A spaCy model that is not installed does no harm unless it is used, and stays in the settings."""
    encoder, _ = make_encoder(False, detector={"kind": "spacy", "model": "no_such_model"})
    encoder.save(tmp_path / "model")
    again = CompressedEncoder.load(tmp_path / "model", device="cpu")
    assert again.encode("play some jazz").shape == (1, again.encoder.hidden)
    assert again.compression.sources == ("given", "detected", "retrieved")
    again.compression.set(source="detected")
    with pytest.raises(CorpusError, match=r"no_such_model|spaCy"):
        again.encode(["play some jazz"])


def test_the_compression_of_another_model_is_not_used(tmp_path: Path) -> None:
    encoder, _ = make_encoder(False)
    encoder.save(tmp_path / "model")
    assert load_model(tmp_path / "model").variants
    Encoder.load(backbone()).save(tmp_path / "model")
    with pytest.raises(ModelError, match="belongs to another model"):
        CompressedEncoder.load(tmp_path / "model")
    assert not load_model(tmp_path / "model").variants


def test_the_compression_of_an_older_version_is_refused(tmp_path: Path) -> None:
    make_encoder(False)[0].save(tmp_path / "model")
    write_tensors(tmp_path / "model" / "compression" / "compression.safetensors", {"vectors": torch.zeros(1, 2)})
    for compressed in (True, False):
        with pytest.raises(
            ModelError, match=r"compression\.safetensors was written by an older version: train the model"
        ):
            load_model(tmp_path / "model", compressed=compressed)
