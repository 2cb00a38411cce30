"""Static quantisation: large channels keep their values, sums of two products fit into 16 bits, and so do ranges."""

from pathlib import Path

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")

from onnx import TensorProto, helper, numpy_helper  # noqa: E402

from turnwise.core.model_names import TURNWISE_SMALL_INT8  # noqa: E402
from turnwise.models.backbone.onnx_graph import ONNX_FILE  # noqa: E402
from turnwise.models.backbone.source import locate_model  # noqa: E402
from turnwise.models.quantisation import quantise  # noqa: E402

WORDS, SIZE, OUTPUTS = 50, 32, 24


def write_graph(path: Path, table: np.ndarray, *weights: np.ndarray, gain: np.ndarray | None = None) -> None:
    """Write a graph that looks tokens up, scales channels by `gain`, and adds the products with several weights."""
    nodes = [
        helper.make_node("Gather", ["table", "ids"], ["vectors"], "lookup"),
        helper.make_node("Mul", ["vectors", "gain"], ["states"], "scale"),
        *(helper.make_node("MatMul", ["states", f"w{n}"], [f"y{n}"], f"linear{n}") for n in range(len(weights))),
        helper.make_node("Sum", [f"y{n}" for n in range(len(weights))], ["out"]),
    ]
    gain = np.ones(table.shape[1]) if gain is None else gain
    tensors = {"table": table, "gain": gain, **{f"w{n}": weight for n, weight in enumerate(weights)}}
    graph = helper.make_graph(
        nodes,
        "test",
        [helper.make_tensor_value_info("ids", TensorProto.INT64, ["batch", "length"])],
        [helper.make_tensor_value_info("out", TensorProto.FLOAT, ["batch", "length", OUTPUTS])],
        [numpy_helper.from_array(value.astype(np.float32), name) for name, value in tensors.items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9), path)


def run(path: Path, ids: np.ndarray) -> np.ndarray:
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, {"ids": ids})[0])


def parts(path: Path) -> dict[str, np.ndarray]:
    return {each.name: numpy_helper.to_array(each) for each in onnx.load(path).graph.initializer}


@pytest.fixture
def quantised(tmp_path: Path) -> tuple[Path, np.ndarray, np.ndarray]:
    """A quantised graph with a channel fifty times as large as the others, all tokens, and the exact outputs."""
    random = np.random.default_rng(0)
    gain = np.ones(SIZE)
    gain[3] = 50
    weights = [random.normal(size=(SIZE, OUTPUTS)) * 0.1 for _ in range(2)]
    path = tmp_path / ONNX_FILE
    write_graph(path, random.normal(size=(WORDS, SIZE)), *weights, gain=gain)
    ids = np.arange(WORDS)[None]
    exact = run(path, ids)
    quantise(path, [{"ids": ids[:, :25]}, {"ids": ids[:, 25:]}])
    return path, ids, exact


def test_a_large_channel_does_not_spoil_the_others(quantised: tuple[Path, np.ndarray, np.ndarray]) -> None:
    path, ids, exact = quantised
    actual = run(path, ids)
    assert 0 < np.abs(actual - exact).max() < 0.05 * exact.std()


def test_everything_large_is_stored_in_8_bits_and_inputs_share_one_scale(
    quantised: tuple[Path, np.ndarray, np.ndarray],
) -> None:
    path, _, _ = quantised
    stored = parts(path)
    assert not [name for name, value in stored.items() if value.dtype == np.float32 and value.size > SIZE]
    operators = [node.op_type for node in onnx.load(path).graph.node]
    assert operators.count("QuantizeLinear") == 1 and operators.count("MatMul") == 2


def test_values_outside_the_measured_range_are_clipped(tmp_path: Path) -> None:
    table = np.ones((4, 2)) * [[1], [2], [-1], [4]]
    path = tmp_path / ONNX_FILE
    write_graph(path, table, np.ones((2, OUTPUTS)))
    quantise(path, [{"ids": np.array([[0, 1, 2]])}])
    outputs = run(path, np.array([[0, 1, 2, 3]]))[0, :, 0]
    np.testing.assert_allclose(outputs, [2, 4, -2, 4], atol=0.1)


@pytest.mark.parametrize("outlier", [False, True])
def test_two_adjacent_products_fit_into_16_bits(outlier: bool, tmp_path: Path) -> None:
    random = np.random.default_rng(1)
    weight = np.abs(random.normal(size=(SIZE, OUTPUTS)))  # of one sign: sums are as large as they can be
    weight[4:6] = 5 if outlier else weight[4:6]
    path = tmp_path / ONNX_FILE
    write_graph(path, random.normal(size=(WORDS, SIZE)), weight)
    quantise(path, [{"ids": np.arange(WORDS)[None]}])
    assert_no_overflow(parts(path)["w0.quantised"])


def test_packaged_model_cannot_overflow() -> None:
    weights = parts(locate_model(TURNWISE_SMALL_INT8) / ONNX_FILE)
    layers = [value for name, value in weights.items() if name.endswith(".quantised") and value.dtype == np.int8]
    assert len(layers) == 36
    for layer in layers:
        assert_no_overflow(layer)


def assert_no_overflow(quantised: np.ndarray) -> None:
    """Check the sums of two adjacent products with the largest inputs, as processors without VNNI compute them."""
    products = quantised.astype(np.int64).reshape(-1, 2, quantised.shape[1]) * 255
    for sign in (1, -1):
        assert np.maximum(products * sign, 0).sum(1).max() <= 2**15 - 1
