"""Padded streams give the states and gradients of unpadded ones; nothing in them would break a CUDA graph's capture."""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close
from torch.utils._python_dispatch import TorchDispatchMode

from tests.helpers.families import BUCKETED, UNPADDED, random_bert, sequences
from turnwise.core.errors import ModelError
from turnwise.models.backbone.attention import TILE_SIZES, TRITON
from turnwise.models.backbone.backbone import Backbone
from turnwise.models.backbone.graphs import PaddedStream, round_up
from turnwise.models.backbone.load import load_backbone
from turnwise.models.backbone.stream import TokenStream

Folder = Callable[[str], Path]

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
LENGTHS = (7, 40, 1, 12, 7, 3, 25, 1, 40, 12, 7, 33, 2)


def load(folder: Path, *, graphs: bool, tiled: bool = False) -> Backbone:
    torch.manual_seed(0)
    backbone = load_backbone(folder).to(DEVICE).train()
    backbone.set_dropout(0.0, 0.0)
    backbone._use_tiles = lambda: tiled  # type: ignore[method-assign]
    if graphs:
        backbone.use_graphs()
    return backbone


def states_and_gradients(backbone: Backbone, stream: TokenStream) -> dict[str, torch.Tensor]:
    """The token states, and the gradients that a loss on them adds to the parameters."""
    states = backbone(stream)
    states.square().mean().backward()
    own = {name: value.grad for name, value in backbone.named_parameters() if value.grad is not None}
    return {"states": states.detach().clone(), **{name: value.clone() for name, value in own.items()}}


def assert_same(actual: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> None:
    assert actual.keys() == expected.keys()
    for name, value in expected.items():
        assert_close(actual[name], value, atol=1e-5, rtol=1e-4, msg=lambda text, name=name: f"{name}: {text}")


@pytest.mark.parametrize("family", UNPADDED)
def test_padding_changes_no_state_and_no_gradient(family: str, tiny_folder: Folder) -> None:
    folder, parts = tiny_folder(family), sequences(LENGTHS)
    plain, padded = (load(folder, graphs=graphs) for graphs in (False, True))
    for chosen in (parts, parts[:3], parts):  # gradients add up
        stream = TokenStream.of(chosen)
        assert_same(states_and_gradients(padded, stream), states_and_gradients(plain, stream))


@pytest.mark.skipif(not TRITON, reason="no Triton: the tile kernel needs it")
def test_padding_for_the_tile_kernel_with_segments_and_a_long_sequence() -> None:
    plain = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0, "num_hidden_layers": 1}
    passes = 3 if DEVICE.type == "cuda" else 1  # the second one captures; without a GPU the kernel is interpreted
    parts = [np.arange(1, length + 1, dtype=np.int32) for length in (*LENGTHS, TILE_SIZES[-1] + 5)]
    segments = [np.arange(len(part), dtype=np.int32) % 2 for part in parts]
    results = []
    for graphs in (False, True):
        torch.manual_seed(0)
        backbone = random_bert(**plain).to(DEVICE).train()
        if graphs:
            backbone._use_tiles = lambda: True  # type: ignore[method-assign]
            backbone.use_graphs()
        stream = TokenStream.of(parts, segments)
        results.append([states_and_gradients(backbone, stream) for _ in range(passes)])
        if graphs and DEVICE.type == "cuda":
            assert len(backbone._graphs[0].graphs) == 1
    for actual, expected in zip(results[1], results[0], strict=True):
        assert_same(actual, expected)


@given(st.lists(st.integers(1, TILE_SIZES[-1]), min_size=1, max_size=80))
def test_every_token_and_all_padding_is_in_one_tile(lengths: list[int]) -> None:
    stream = TokenStream.of([np.ones(length, np.int32) for length in lengths])
    padded = PaddedStream.of(stream, first_position=2, padding_id=7, tiled=True)
    ids, positions, segments, shape = padded.unpack(torch.from_numpy(padded.numbers))
    assert ids.shape == positions.shape == segments.shape == (1, padded.tokens)
    assert padded.tokens >= stream.tokens and padded.count == stream.tokens
    assert (ids[0, stream.tokens :] == 7).all() and (positions[0, stream.tokens :] == 2).all()
    assert shape.tiles is not None
    assert shape.tiles.shape == (padded.tiles, 3) and shape.tiles.dtype == torch.int32
    covered = [place for start, end, _ in shape.tiles.tolist() for place in range(start, end)]
    assert covered == list(range(padded.tokens))
    assert (shape.tiles[:, 2] > 0).all()  # the kernel divides by it


@given(st.integers(1, 1 << 20))
def test_sizes_are_few_and_not_much_larger(count: int) -> None:
    rounded = round_up(count, 32, 64)
    assert count <= rounded <= max(count * (1 + 1 / 16), count + 63)
    assert round_up(rounded, 32, 64) == rounded


def test_split_by_length_keeps_the_order() -> None:
    parts = sequences(LENGTHS)
    stream = TokenStream.of(parts, [np.full(len(part), number, np.int32) for number, part in enumerate(parts)])
    short, long = stream.split(12)
    assert short is not None and long is not None
    assert max(short.lengths) == 12 and min(long.lengths) == 25
    assert short.segments is not None and long.segments is not None and stream.segments is not None
    assert torch.equal(torch.cat([short.ids, long.ids]), stream.ids)
    assert torch.equal(torch.cat([short.segments, long.segments]), stream.segments)
    for part in (short, long):
        assert part.groups == TokenStream.of([np.ones(length, np.int32) for length in part.lengths]).groups
    assert stream.split(40) == (stream, None)
    assert stream.split(0) == (None, stream)


class HostReads(TorchDispatchMode):
    """Counts operations whose result the host reads, or whose size depends on values: a capture fails at them."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if any(tag in func.tags for tag in (torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape)):
            self.found.append(str(func))
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("family", UNPADDED)
def test_model_reads_nothing_back_to_the_host(family: str, tiny_folder: Folder) -> None:
    backbone = load(tiny_folder(family), graphs=True)
    stream = TokenStream.of(sequences(LENGTHS))
    with HostReads() as reads:
        backbone(stream).square().mean().backward()
    assert reads.found == []


def test_evaluation_and_states_without_gradient(tiny_folder: Folder) -> None:
    folder, stream = tiny_folder("bert"), TokenStream.of(sequences(LENGTHS))
    plain, padded = (load(folder, graphs=graphs) for graphs in (False, True))
    with torch.no_grad():
        without = padded(stream)
        assert not without.requires_grad
        assert_close(without, plain(stream))
    assert_close(padded.eval()(stream), plain.eval()(stream))


def test_copy_runs_as_usual(tiny_folder: Folder) -> None:
    backbone, stream = load(tiny_folder("bert"), graphs=True), TokenStream.of(sequences(LENGTHS))
    copied = copy.deepcopy(backbone)
    backbone.compile(backend="eager")
    assert not {"_graphs", "_compiled"} & set(copied.__dict__)
    assert_close(copied(stream), backbone(stream))
    backbone.release_graphs()
    assert "_graphs" not in backbone.__dict__


def test_bucketed_family_has_no_graphs(tiny_folder: Folder) -> None:
    backbone = load_backbone(tiny_folder(BUCKETED[0]))
    assert not backbone.supports_graphs
    with pytest.raises(ModelError, match="cuda_graphs=false"):
        backbone.use_graphs()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU: nothing is captured")
def test_replays_equal_normal_runs_with_dropout() -> None:
    """A captured size has the random numbers that it had before it was captured, and a seed decides them."""
    torch.manual_seed(0)
    backbone = random_bert(hidden_size=64).to(DEVICE).train()
    backbone.use_graphs()
    stream = TokenStream.of([np.arange(1, length + 1, dtype=np.int32) for length in LENGTHS])
    results = []
    for seed in (1, 2, 1, 2, 1):
        torch.cuda.manual_seed(seed)
        for value in backbone.parameters():
            if value.grad is not None:
                value.grad.zero_()
        results.append(states_and_gradients(backbone, stream))
    assert len(backbone._graphs[0].graphs) == 1
    assert_same(results[2], results[0])
    assert_same(results[3], results[1])
    assert_same(results[4], results[0])
    assert not torch.allclose(results[0]["states"], results[1]["states"])


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU: nothing is captured")
def test_backward_pass_must_follow_its_forward_pass() -> None:
    backbone = random_bert(hidden_size=64, num_hidden_layers=1).to(DEVICE).train()
    backbone.use_graphs()
    stream = TokenStream.of([np.arange(1, length + 1, dtype=np.int32) for length in LENGTHS])
    for _ in range(2):
        backbone(stream).sum().backward()
    first, _ = backbone(stream), backbone(stream)
    with pytest.raises(RuntimeError, match="directly follow"):
        first.sum().backward()
