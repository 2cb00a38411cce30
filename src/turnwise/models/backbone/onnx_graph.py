"""ONNX graphs with the pooling inside, run by onnxruntime or OpenVINO.

A graph accepts padded rows, for other programs. Here it is given rows of one length, so nothing is padded and no vector
depends on what else is in the batch.
"""

import hashlib
import os
import shutil
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import numpy.typing as npt

from turnwise.core.errors import ModelError, first_line
from turnwise.core.files import replacing
from turnwise.core.imports import explain_missing_packages
from turnwise.core.types import Vectors
from turnwise.models.backbone.ragged import RaggedTokens
from turnwise.models.backbone.source import Runtime

#: The file of a graph in a model's folder.
ONNX_FILE = "model.onnx"

#: The inputs of an ONNX graph, the last one only for families with segments.
ONNX_INPUTS = ("input_ids", "attention_mask", "token_type_ids")

#: Its outputs: the vector, and in graphs that normalise also the vector before normalisation.
ONNX_VECTOR = "sentence_embedding"
ONNX_UNNORMALISED = "pooled"

#: Tokens of one run of a graph.
_RUN_TOKENS = 512


class OnnxGraph:
    """The ONNX file in a model's folder, and the library that runs it."""

    kind = "onnx"

    def __init__(self, folder: Path, runtime: Runtime = "onnxruntime"):
        self._path = folder.absolute() / ONNX_FILE
        self.runtime: Runtime = runtime
        if not self._path.is_file():
            raise ModelError(f"{self._path} is missing: export the model again")
        with self._path.open("rb") as file:
            self.digest = hashlib.file_digest(file, "sha256").hexdigest()
        threads = _count_threads()
        try:
            session = (_OpenVinoSession if runtime == "openvino" else _OnnxRuntimeSession)(self._path, threads)
        except ImportError:
            raise
        except Exception as error:  # the errors of onnxruntime have no common class
            raise ModelError(f"{self._path} cannot be run ({first_line(error)}): export the model again") from error
        self._session = session
        self._threads = ThreadPoolExecutor(threads, "onnx")
        self._output = ONNX_UNNORMALISED if ONNX_UNNORMALISED in session.sizes else ONNX_VECTOR
        self.hidden = session.sizes[ONNX_VECTOR]
        # with 8 bits, vectors differ a little between runtimes
        self.configuration = self.kind if runtime == "onnxruntime" else f"{self.kind} {runtime}"

    def run(self, sequences: RaggedTokens) -> Vectors:
        """Return vectors (sequences, hidden), not normalised; threads run rows of one length each."""
        vectors = np.empty((len(sequences), self.hidden), np.float32)

        def run_rows(rows: npt.NDArray[np.int64]) -> None:
            ids = sequences.take(rows).tokens.astype(np.int64).reshape(len(rows), -1)
            values = dict(zip(ONNX_INPUTS, (ids, np.ones_like(ids), np.zeros_like(ids)), strict=True))
            try:
                vectors[rows] = self._session.run(self._output, {name: values[name] for name in self._session.inputs})
            except Exception as error:  # the errors of onnxruntime have no common class
                raise ModelError(f"{self._path} cannot be run ({first_line(error)}): export the model again") from error

        list(self._threads.map(run_rows, _rows_of_one_length(sequences.lengths)))
        return vectors

    def save(self, folder: Path, normalise: bool) -> None:
        """Write the graph, which normalises by itself."""
        with replacing(folder / ONNX_FILE) as part:
            shutil.copyfile(self._path, part)

    def __reduce__(self) -> tuple[type["OnnxGraph"], tuple[Path, Runtime]]:
        return OnnxGraph, (self._path.parent, self.runtime)


def _rows_of_one_length(lengths: npt.NDArray[np.int64]) -> Iterator[npt.NDArray[np.int64]]:
    """Yield the indices of sequences of one length, longest first, with at most `_RUN_TOKENS` tokens together."""
    for length in np.unique(lengths)[::-1]:
        rows = np.flatnonzero(lengths == length)
        yield from np.split(rows, range(step := max(1, _RUN_TOKENS // int(length)), len(rows), step))


class _OnnxRuntimeSession:
    """A graph in onnxruntime, where every thread that calls `run` computes by itself."""

    def __init__(self, path: Path, threads: int):
        import onnxruntime  # here, because static models do not need it

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1  # `OnnxGraph.run` has threads, which is faster than several for one product
        options.enable_mem_pattern = False  # a plan would be kept for every input shape, of which there are many
        options.log_severity_level = 3
        self._session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        self.inputs = [each.name for each in self._session.get_inputs()]
        self.sizes = {each.name: int(each.shape[1]) for each in self._session.get_outputs()}

    def run(self, output: str, values: dict[str, npt.NDArray[np.int64]]) -> Vectors:
        return np.asarray(self._session.run([output], values)[0])


class _OpenVinoSession:
    """A graph in OpenVINO, where at most `threads` calls of `run` compute at a time, with one thread each."""

    def __init__(self, path: Path, threads: int):
        sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type]  # openvino then reports nothing
        with explain_missing_packages():
            import openvino

        options = {
            "INFERENCE_NUM_THREADS": threads,
            "NUM_STREAMS": threads,
            "INFERENCE_PRECISION_HINT": "f32",  # the default is bf16 on processors that have it
            "ENABLE_CPU_PINNING": False,  # several processes may share the cores
        }
        self._model = openvino.Core().compile_model(path, "CPU", options)
        self._local = threading.local()  # requests can be used by one thread at a time
        self.inputs = [each.any_name for each in self._model.inputs]
        self.sizes = {each.any_name: each.partial_shape[1].get_length() for each in self._model.outputs}
        # the first run also initialises OpenVINO's bindings, which deadlock if several threads do so at once
        self.run(ONNX_VECTOR, {name: np.ones((1, 1), np.int64) for name in self.inputs})

    def run(self, output: str, values: dict[str, npt.NDArray[np.int64]]) -> Vectors:
        if not hasattr(self._local, "request"):
            self._local.request = self._model.create_infer_request()
        return np.asarray(self._local.request.infer(values)[output])


def _count_threads() -> int:
    """Return `OMP_NUM_THREADS`, which torch honours too, or the number of cores that this process may use."""
    requested = os.environ.get("OMP_NUM_THREADS", "")
    if requested.isdecimal() and int(requested):
        return int(requested)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
