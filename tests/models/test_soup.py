"""Weight averaging: exact at both ends, linear between, rejection of incompatible models."""

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.helpers.families import make_reranker, perturbed
from turnwise.core.errors import ModelError
from turnwise.models.encoder import Encoder, encoder_fingerprint
from turnwise.models.reranker import Reranker
from turnwise.models.soup import average_weights


@pytest.fixture(scope="module")
def first(tiny_folder: Callable[[str], Path]) -> Encoder:
    return Encoder.load(tiny_folder("bert"), device="cpu")


@pytest.fixture(scope="module")
def second(first: Encoder) -> Encoder:
    return perturbed(first)


@pytest.fixture(scope="module")
def rerankers(tiny_folder: Callable[[str], Path]) -> tuple[Reranker, Reranker]:
    return make_reranker(tiny_folder("bert"), seed=0), make_reranker(tiny_folder("bert"), seed=1)


def weights(model: Encoder | Reranker) -> dict[str, np.ndarray]:
    return {name: value.numpy().copy() for name, value in model.state_dict().items()}


def same(ours: dict[str, np.ndarray], theirs: dict[str, np.ndarray]) -> bool:
    return ours.keys() == theirs.keys() and all(ours[name].tobytes() == theirs[name].tobytes() for name in ours)


# ---- weights


@pytest.mark.parametrize("family", ["bert", "t5"])  # of which t5 shares weights
def test_ratios_0_and_1_are_the_two_models_bit_for_bit(family: str, tiny_folder: Callable[[str], Path]) -> None:
    first = Encoder.load(tiny_folder(family), device="cpu")
    second = perturbed(first)
    for ratio, end in ((0, first), (1, second)):
        average = average_weights(first, second, ratio)
        assert same(weights(average), weights(end))
        assert encoder_fingerprint(average) == encoder_fingerprint(end)
        assert average is not end and average.backbone is not end.backbone


@settings(deadline=None, max_examples=20)
@given(st.floats(0, 1))
def test_weights_are_linear_in_the_ratio(first: Encoder, second: Encoder, ratio: float) -> None:
    ours, theirs, average = weights(first), weights(second), weights(average_weights(first, second, ratio))
    for name, value in average.items():
        expected = (1 - ratio) * ours[name].astype(np.float64) + ratio * theirs[name].astype(np.float64)
        assert value.dtype == np.float32
        np.testing.assert_allclose(value, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("family", ["roberta", "t5"])
def test_shared_weights_are_averaged_once(family: str, tiny_folder: Callable[[str], Path]) -> None:
    first = Encoder.load(tiny_folder(family), device="cpu")
    second = perturbed(first)
    ours, theirs, average = weights(first), weights(second), weights(average_weights(first, second, 0.25))
    for name, value in average.items():
        np.testing.assert_allclose(value, 0.75 * ours[name] + 0.25 * theirs[name], rtol=1e-5, atol=1e-6)


def test_both_models_stay_unchanged(first: Encoder, second: Encoder) -> None:
    before = weights(first), weights(second)
    average = average_weights(first, second, 0.5)
    with torch.no_grad():
        for ends in (average, average_weights(first, second, 0), average_weights(first, second, 1)):
            for parameter in ends.parameters():
                parameter.zero_()
    assert same(weights(first), before[0]) and same(weights(second), before[1])


def test_maximum_length_is_the_smaller_one(first: Encoder, second: Encoder) -> None:
    short = copy.deepcopy(second)
    short.max_length = 7
    for ratio in (0, 0.5, 1):
        assert average_weights(first, short, ratio).max_length == average_weights(short, first, ratio).max_length == 7
    assert short.max_length == 7 and first.max_length > 7


def test_rerankers_are_averaged_with_their_heads(rerankers: tuple[Reranker, Reranker]) -> None:
    ours, theirs, average = (weights(model) for model in (*rerankers, average_weights(*rerankers, 0.25)))
    assert {"heads.selection.weight", "heads.search.bias"} < average.keys()
    for name, value in average.items():
        np.testing.assert_allclose(value, 0.75 * ours[name] + 0.25 * theirs[name], rtol=1e-5, atol=1e-6)


# ---- incompatible models


def test_an_encoder_and_a_reranker_are_rejected(first: Encoder, rerankers: tuple[Reranker, Reranker]) -> None:
    with pytest.raises(ModelError, match="an encoder and a re-ranker cannot be averaged"):
        average_weights(first, rerankers[0], 0.5)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda reranker: setattr(reranker, "window", 3), "weights: window$"),
        (lambda reranker: reranker.heads.pop("search"), r"weights: heads\.search\.bias, heads\.search\.weight$"),
    ],
)
def test_rerankers_that_differ_in_more_than_weights_are_rejected(
    rerankers: tuple[Reranker, Reranker], change: Callable[[Reranker], None], message: str
) -> None:
    other = copy.deepcopy(rerankers[1])
    change(other)
    with pytest.raises(ModelError, match=message):
        average_weights(rerankers[0], other, 0.5)


@pytest.mark.parametrize("ratio", [-0.001, 1.001, float("nan"), float("inf")])
def test_ratio_out_of_range_is_rejected(first: Encoder, second: Encoder, ratio: float) -> None:
    with pytest.raises(ModelError, match=r"must be between 0 .* and 1"):
        average_weights(first, second, ratio)


def changed(encoder: Encoder, **attributes: Any) -> Encoder:
    other = copy.deepcopy(encoder)
    for name, value in attributes.items():
        setattr(other, name, value)
    return other


def without_a_layer(encoder: Encoder) -> Encoder:
    other = copy.deepcopy(encoder)
    del other.backbone.layer_list()[-1]
    return other


def with_heads(encoder: Encoder) -> Encoder:
    other = copy.deepcopy(encoder)
    other.backbone.config.num_attention_heads = 2
    return other


def with_other_normalizer(encoder: Encoder) -> Encoder:
    from tokenizers import normalizers

    other = copy.deepcopy(encoder)
    other.backbone.tokenizer.backend_tokenizer.normalizer = normalizers.NFC()
    return other


def with_other_word(encoder: Encoder) -> Encoder:
    """Replace a word, so that all weights keep their shapes."""
    from tokenizers import Tokenizer

    other = copy.deepcopy(encoder)
    backend = json.loads(other.backbone.tokenizer.backend_tokenizer.to_str())
    backend["model"]["vocab"] = {
        word if word != "hotel" else "inn": number for word, number in backend["model"]["vocab"].items()
    }
    other.backbone.tokenizer.backend_tokenizer = Tokenizer.from_str(json.dumps(backend))
    return other


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda encoder: changed(encoder, pooling="cls"), "weights: pooling$"),
        (lambda encoder: changed(encoder, style="roles"), "weights: style$"),
        (lambda encoder: changed(encoder, normalise=True), "weights: normalise$"),
        (without_a_layer, r"backbone\.model\.encoder\.layer\.1\.\S+, .* and 11 more$"),
        (with_heads, "weights: num_attention_heads$"),
        (with_other_normalizer, r"weights: normalizer of the tokenizer$"),
        (with_other_word, r"weights: model of the tokenizer$"),
    ],
)
def test_models_that_differ_in_more_than_weights_are_rejected(
    first: Encoder, second: Encoder, change: Callable[[Encoder], Encoder], message: str
) -> None:
    for ratio in (0, 0.5, 1):
        with pytest.raises(ModelError, match=message):
            average_weights(first, change(second), ratio)
