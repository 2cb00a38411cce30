"""The flat stream equals the model's own padded forward pass: states and gradients, for every family."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close
from transformers import PreTrainedModel

from tests.helpers.families import BUCKETED, FAMILIES, LOCAL, UNPADDED, padded_output, plain_model, sequences
from turnwise.models.backbone.attention import StreamShape, unpadded_attention
from turnwise.models.backbone.backbone import Backbone
from turnwise.models.backbone.load import load_backbone
from turnwise.models.backbone.ragged import Tokens
from turnwise.models.backbone.stream import TokenStream

Folder = Callable[[str], Path]

#: Mixed and shuffled, some equal, from a single token to far beyond ModernBERT's window.
LENGTHS = (7, 40, 1, 12, 7, 3, 25, 1, 40, 12, 7, 33, 2)


def padded(model: PreTrainedModel, parts: list[Tokens], segments: list[Tokens] | None = None) -> list[torch.Tensor]:
    """Every sequence's token states by the model's own way."""
    states = padded_output(model, parts, segments).last_hidden_state
    return [row[: len(part)] for row, part in zip(states, parts, strict=True)]


def streamed(backbone: Backbone, parts: list[Tokens], segments: list[Tokens] | None = None) -> list[torch.Tensor]:
    """Every sequence's token states out of the stream, in the order given."""
    stream = TokenStream.of(parts, segments)
    pieces = backbone(stream).split(stream.lengths.tolist())
    given_order = sorted(range(len(parts)), key=lambda place: stream.order[place])
    return [pieces[place] for place in given_order]


def assert_same(actual: list[torch.Tensor], expected: list[torch.Tensor]) -> None:
    for mine, own in zip(actual, expected, strict=True):
        assert_close(mine, own, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("family", FAMILIES)
def test_states_equal_the_padded_forward(family: str, tiny_folder: Folder) -> None:
    folder = tiny_folder(family)
    backbone = load_backbone(folder).eval()
    assert backbone.unpadded == (family in UNPADDED)
    parts = sequences(LENGTHS)
    with torch.no_grad():
        assert_same(streamed(backbone, parts), padded(plain_model(folder), parts))


@pytest.mark.parametrize("family", FAMILIES)
def test_gradients_equal_the_padded_forward(family: str, tiny_folder: Folder) -> None:
    folder = tiny_folder(family)
    backbone, own = load_backbone(folder).train(), plain_model(folder).train()
    parts = sequences(LENGTHS, seed=1)
    backbone(TokenStream.of(parts)).square().sum().backward()
    torch.cat(padded(own, parts)).square().sum().backward()
    expected = {name: parameter.grad for name, parameter in own.named_parameters()}
    scale = max(float(gradient.abs().max()) for gradient in expected.values() if gradient is not None)
    assert scale > 1e-2
    for name, parameter in backbone.model.named_parameters():
        if expected[name] is None:
            assert parameter.grad is None or not parameter.grad.any(), name
        else:
            assert parameter.grad is not None, name
            assert_close(
                parameter.grad, expected[name], atol=1e-5 * scale, rtol=0, msg=lambda text, name=name: f"{name}: {text}"
            )


@pytest.mark.parametrize("family", ["bert", "electra"])
def test_segments_reach_the_model(family: str, tiny_folder: Folder) -> None:
    folder = tiny_folder(family)
    backbone, own = load_backbone(folder).eval(), plain_model(folder)
    parts = sequences(LENGTHS, seed=2)
    segments = [(part % 2).astype("int32") for part in parts]
    with torch.no_grad():
        actual = streamed(backbone, parts, segments)
        assert_same(actual, padded(own, parts, segments))
        assert not torch.allclose(actual[1], streamed(backbone, parts)[1], atol=1e-2)


@pytest.mark.parametrize("family", ["roberta", "xlm-roberta", "distilbert", "modernbert", "gpt2", "mpnet", "t5"])
def test_segments_are_ignored_where_the_model_has_none(family: str, tiny_folder: Folder) -> None:
    backbone = load_backbone(tiny_folder(family)).eval()
    parts = sequences((3, 9))
    with torch.no_grad():
        assert_same(
            streamed(backbone, parts, [(part % 2).astype("int32") for part in parts]), streamed(backbone, parts)
        )


@given(lengths=st.lists(st.integers(1, 40), min_size=1, max_size=12), seed=st.integers(0, 1000))
def test_any_lengths_equal_the_padded_forward(tiny_folder: Folder, lengths: list[int], seed: int) -> None:
    backbone, own = loaded(tiny_folder("bert"))
    parts = sequences(lengths, seed)
    with torch.no_grad():
        assert_same(streamed(backbone, parts), padded(own, parts))


_LOADED: dict[Path, tuple[Backbone, PreTrainedModel]] = {}


def loaded(folder: Path) -> tuple[Backbone, PreTrainedModel]:
    """A backbone and the plain model, loaded once for all of hypothesis' examples."""
    if folder not in _LOADED:
        _LOADED[folder] = load_backbone(folder).eval(), plain_model(folder)
    return _LOADED[folder]


@pytest.mark.parametrize("length", range(LOCAL // 2 - 1, LOCAL + 4))
def test_local_attention_around_the_edge_of_its_window(length: int, tiny_folder: Folder) -> None:
    """A window off by one would show at the lengths next to it."""
    backbone, own = loaded(tiny_folder("modernbert"))
    parts = sequences((length, length), seed=length)
    with torch.no_grad():
        assert_same(streamed(backbone, parts), padded(own, parts))


@pytest.mark.parametrize("family", BUCKETED)
def test_small_buckets_equal_a_large_one(family: str, tiny_folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    backbone = load_backbone(tiny_folder(family)).eval()
    parts = sequences(LENGTHS, seed=4)
    with torch.no_grad():
        large = streamed(backbone, parts)
        monkeypatch.setattr("turnwise.models.backbone.backbone.BUCKET_TOKENS", 50)
        assert_same(streamed(backbone, parts), large)


@pytest.mark.parametrize("family", FAMILIES)
def test_dropout_on_attention_weights_only(family: str, tiny_folder: Folder) -> None:
    """In training it makes two calls differ, the seed brings the same back, and evaluation knows nothing of it."""
    backbone = load_backbone(tiny_folder(family))
    stream = TokenStream.of(sequences((6, 6, 20)))
    with torch.no_grad():
        whole = backbone.eval()(stream)
        backbone.set_dropout(None, 0.3)
        assert torch.equal(backbone(stream), whole)
        backbone.train()
        torch.manual_seed(1)
        first, second = backbone(stream), backbone(stream)
        torch.manual_seed(1)
        again = backbone(stream)
    assert (first - second).abs().max() > 1e-2
    assert torch.equal(first, again)


@pytest.mark.parametrize(("causal", "window"), [(False, None), (True, None), (False, 3), (True, 3)])
def test_attention_by_its_definition(causal: bool, window: int | None) -> None:
    """With a scale that is not the usual one, and a window on a causal model, which no tiny model has."""
    torch.manual_seed(0)
    stream = TokenStream.of(sequences((2, 5, 5)))
    query, key, value = torch.randn(3, 1, 4, stream.tokens, 8)
    sequence = torch.arange(len(stream)).repeat_interleave(torch.from_numpy(stream.lengths))
    distance = torch.arange(stream.tokens)[:, None] - torch.arange(stream.tokens)
    seen = (sequence[:, None] == sequence) & ((distance >= 0) | (not causal)) & (distance.abs() < (window or 100))
    weights = (0.7 * query @ key.transpose(2, 3)).masked_fill(~seen, -torch.inf).softmax(-1)
    shape = StreamShape.of(stream, torch.device("cpu"), varlen=False)
    how = {"stream_shape": shape, "scaling": 0.7, "sliding_window": window, "is_causal": causal}
    actual, _ = unpadded_attention(torch.nn.Identity(), query, key, value, None, **how)
    assert_close(actual, (weights @ value).transpose(1, 2))
