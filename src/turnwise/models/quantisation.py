"""Static quantisation of an ONNX graph to 8 bits.

The weight of a linear layer has one scale per output, its input one scale and one zero point, which are measured on
sample texts: with dynamic quantisation a vector would depend on what else is in the batch. A few channels of a
transformer's states are tens of times as large as the others. As in SmoothQuant (Xiao et al., 2023), an input channel
is divided by a factor and its weights are multiplied by it, so that the 256 levels are used more evenly.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime
from onnx import helper, numpy_helper
from onnxruntime.quantization import QuantType, quantize_dynamic
from onnxruntime.quantization.onnx_model import ONNXModel

from turnwise.core.types import Vectors

#: The exponent of an input channel's range in its factor; one minus it is that of its weights' range.
_SMOOTHING = 0.8

_SMALLEST = 1e-5


def quantise(path: Path, samples: Iterable[Mapping[str, npt.NDArray[np.int64]]]) -> None:
    """Quantise the linear layers and the word embeddings of a graph to 8 bits, in place.

    `samples` are inputs of the graph, whose range of values is representative.
    """
    graph = ONNXModel(onnx.load(path))
    graph.replace_gemm_with_matmul()  # GPT-2's layers
    weights = {each.name: each for each in graph.model.graph.initializer}
    layers: dict[str, list[Any]] = defaultdict(list)  # by their input, which several may share
    for node in graph.model.graph.node:
        if node.op_type == "MatMul" and node.input[1] in weights:
            layers[node.input[0]].append(node)
    ranges = _measure(graph.model, list(layers), samples)
    for name, nodes in layers.items():
        _quantise_layers(graph, name, nodes, {node.input[1]: weights[node.input[1]] for node in nodes}, ranges[name])
    graph.clean_initializers()
    graph.topological_sort()
    _quantise_embeddings(graph.model, path)


def _measure(
    model: Any, names: list[str], samples: Iterable[Mapping[str, npt.NDArray[np.int64]]]
) -> dict[str, list[Vectors]]:
    """Return the least and the largest value of every channel (channels,) of tensors in a graph."""
    observed = onnx.ModelProto()
    observed.CopyFrom(model)
    del observed.graph.output[:]
    observed.graph.output.extend(helper.make_empty_tensor_value_info(name) for name in names)
    session = onnxruntime.InferenceSession(observed.SerializeToString(), providers=["CPUExecutionProvider"])
    ranges: dict[str, list[Vectors]] = {}
    for sample in samples:
        for name, values in zip(names, session.run(names, dict(sample)), strict=True):
            rows = np.vstack([*ranges.get(name, []), values.reshape(-1, values.shape[-1])])
            ranges[name] = [rows.min(0), rows.max(0)]
    return ranges


def _quantise_layers(
    graph: ONNXModel, name: str, nodes: list[Any], weights: Mapping[str, Any], limits: list[Vectors]
) -> None:
    """Quantise the weights of layers with the same input, and the input, whose channels have these limits."""
    matrices = {key: numpy_helper.to_array(weight) for key, weight in weights.items()}  # (inputs, outputs) each
    largest_weight = np.max([np.abs(matrix).max(1) for matrix in matrices.values()], 0)
    largest = np.maximum(np.maximum(-limits[0], limits[1]), _SMALLEST)
    factors = largest**_SMOOTHING / np.maximum(largest_weight, _SMALLEST) ** (1 - _SMOOTHING)
    least, most = min(0.0, float((limits[0] / factors).min())), max(0.0, float((limits[1] / factors).max()))
    scale = max(most - least, _SMALLEST) / 255
    constants = {
        "factors": (1 / factors).astype(np.float32),
        "scale": np.float32(scale),
        "zero": np.uint8(round(-least / scale)),
    }
    for key, value in constants.items():
        graph.add_initializer(numpy_helper.from_array(np.asarray(value), f"{name}.{key}"))
    range_of = [f"{name}.scale", f"{name}.zero"]
    graph.add_node(helper.make_node("Mul", [name, f"{name}.factors"], [f"{name}.smooth"]))
    graph.add_node(helper.make_node("QuantizeLinear", [f"{name}.smooth", *range_of], [f"{name}.quantised"]))
    graph.add_node(helper.make_node("DequantizeLinear", [f"{name}.quantised", *range_of], [f"{name}.restored"]))
    for key, matrix in matrices.items():
        smooth = matrix * factors[:, None]
        scales = np.maximum(_largest_sums(smooth), _SMALLEST) / 127
        values = {
            "quantised": np.round(smooth / scales).astype(np.int8),
            "scales": scales.astype(np.float32),
            "zeros": np.zeros(len(scales), np.int8),
        }
        for part, value in values.items():
            graph.add_initializer(numpy_helper.from_array(value, f"{key}.{part}"))
        inputs = [f"{key}.{part}" for part in values]
        graph.add_node(helper.make_node("DequantizeLinear", inputs, [f"{key}.restored"], axis=1))
    for node in nodes:
        node.input[:] = [f"{name}.restored", f"{node.input[1]}.restored"]


def _largest_sums(matrix: Vectors) -> Vectors:
    """Return the largest absolute value of a weight, or of the sum of two adjacent ones, of every output.

    x86 processors without VNNI add two adjacent products in 16 bits: so scaled, the sum never overflows.
    """
    pairs = np.pad(matrix, ((0, len(matrix) % 2), (0, 0))).reshape(-1, 2, matrix.shape[1])
    return np.asarray(np.maximum(np.abs(pairs).max(1), np.abs(pairs.sum(1))).max(0))


def _quantise_embeddings(model: Any, path: Path) -> None:
    """Quantise the largest lookup table: others, of positions and segments, are small and used by every token."""
    sizes = {each.name: int(np.prod(each.dims)) for each in model.graph.initializer}
    lookups = [node for node in model.graph.node if node.op_type == "Gather"]
    words = max(lookups, key=lambda node: sizes.get(node.input[0], 0))
    quantize_dynamic(
        model, path, op_types_to_quantize=["Gather"], nodes_to_quantize=[words.name], weight_type=QuantType.QInt8
    )
