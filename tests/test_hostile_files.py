"""Hostile model folders, tables, classifiers and maps: no code is run, memory is bounded, and errors are sentences."""

import json
import os
import pickle
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from safetensors.numpy import save_file

from tests.helpers import ROOT, tiny
from tests.helpers.bag_of_words import BagOfWords
from tests.helpers.intent_examples import pairs
from tests.helpers.small_map import small_map
from turnwise import IntentClassifier
from turnwise.assist.search.table import VectorTable

DEEP = "[" * 100_000 + "]" * 100_000


class Canary:
    """What a pickle runs when it is opened."""

    def __init__(self, path: Path):
        self.path = path

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.path),)


def change_json(path: Path, **values: Any) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


# ---- model folders


def bert(folder: Path) -> Path:
    shutil.copytree(tiny.backbone(), folder)
    return folder


def pickled_weights(folder: Path, canary: Path) -> None:
    (bert(folder) / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps(Canary(canary)))


def own_code(folder: Path, canary: Path) -> None:
    (bert(folder) / "modeling.py").write_text(f"import os\nos.mkdir({str(canary)!r})\n")
    change_json(
        folder / "config.json", model_type="own", auto_map={"AutoConfig": "modeling.C", "AutoModel": "modeling.M"}
    )


def own_tokenizer(folder: Path, canary: Path) -> None:
    own_code(folder, canary)
    change_json(folder / "config.json", model_type="roberta")
    values = {"tokenizer_class": "T", "auto_map": {"AutoTokenizer": ["modeling.T", "modeling.T"]}}
    change_json(folder / "tokenizer_config.json", **values)


def foreign_module(folder: Path, canary: Path) -> None:
    (bert(folder) / "evil.py").write_text(f"import os\nos.mkdir({str(canary)!r})\n")
    (folder / "modules.json").write_text(json.dumps([{"idx": 0, "name": "0", "path": "", "type": "evil.Transformer"}]))


def module_outside(folder: Path, _: Path) -> None:
    bert(folder / "inner")
    bert(folder.with_name(f"{folder.name}-outside"))
    module = {
        "idx": 0,
        "name": "0",
        "path": f"../{folder.name}-outside",
        "type": "sentence_transformers.models.Transformer",
    }
    (folder / "modules.json").write_text(json.dumps([module]))


def config(**values: Any) -> Callable[[Path, Path], None]:
    return lambda folder, _: change_json(bert(folder) / "config.json", **values)


def deep_config(folder: Path, _: Path) -> None:
    (bert(folder) / "config.json").write_text(DEEP)


def truncated_weights(folder: Path, _: Path) -> None:
    path = bert(folder) / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])


def huge_header(folder: Path, _: Path) -> None:
    (bert(folder) / "model.safetensors").write_bytes((1 << 62).to_bytes(8, "little") + b"{}")


def catastrophic_tokenizer(folder: Path, _: Path) -> None:
    path = bert(folder) / "tokenizer.json"
    pattern = {"type": "Split", "pattern": {"Regex": "(a*)*(?=b"}, "behavior": "Isolated", "invert": False}
    change_json(path, pre_tokenizer=pattern)


def onnx_model(change: Callable[[Any, Any], Any] | bytes) -> Callable[[Path, Path], None]:
    """Return what writes an exported model, whose graph is changed, or replaced by bytes."""

    def write(folder: Path, _: Path) -> None:
        import onnx
        from onnx import TensorProto, helper, numpy_helper

        bert(folder)
        (folder / "model.safetensors").unlink()
        (folder / "turnwise.json").write_text(
            json.dumps(
                {
                    "turnwise": "0.2.0",
                    "style": "separator",
                    "kind": "onnx",
                    "pooling": "mean",
                    "max_length": 64,
                    "normalise": True,
                }
            )
        )
        inputs = [
            helper.make_tensor_value_info(name, TensorProto.INT64, ["b", "t"])
            for name in ("input_ids", "attention_mask")
        ]
        output = helper.make_tensor_value_info("sentence_embedding", TensorProto.FLOAT, ["b", 4])
        table = numpy_helper.from_array(np.ones((2000, 4), np.float32), "table")
        nodes = [
            helper.make_node("Gather", ["table", "input_ids"], ["rows"]),
            helper.make_node("ReduceMean", ["rows"], ["sentence_embedding"], axes=[1], keepdims=0),
        ]
        graph = helper.make_graph(nodes, "g", inputs, [output], [table])
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
        if isinstance(change, bytes):
            (folder / "model.onnx").write_bytes(model.SerializeToString()[:200] + change)
            return
        change(model, onnx)
        (folder / "model.onnx").write_bytes(model.SerializeToString())

    return write


def data_outside(model: Any, onnx: Any) -> None:
    table = model.graph.initializer[0]
    table.ClearField("raw_data")
    table.data_location = onnx.TensorProto.EXTERNAL
    table.external_data.add(key="location", value="../../../../../../../../etc/passwd")


def custom_operator(model: Any, onnx: Any) -> None:
    model.graph.node[0].op_type, model.graph.node[0].domain = "Run", "evil"
    model.opset_import.append(onnx.helper.make_opsetid("evil", 1))


def huge_tensor(model: Any, onnx: Any) -> None:
    model.graph.initializer[0].dims[:] = [1 << 40, 4]


def huge_result(model: Any, onnx: Any) -> None:
    shape = onnx.numpy_helper.from_array(np.array([1 << 36], np.int64), "shape")
    model.graph.initializer.append(shape)
    model.graph.node.append(onnx.helper.make_node("ConstantOfShape", ["shape"], ["large"]))
    model.graph.node.append(onnx.helper.make_node("ReduceSum", ["large"], ["sum"], keepdims=0))
    model.graph.node.append(onnx.helper.make_node("Add", ["pooled_", "sum"], ["sentence_embedding"]))
    model.graph.node[1].output[0] = "pooled_"


MODELS: dict[str, Callable[[Path, Path], None]] = {
    "pickled weights": pickled_weights,
    "own code": own_code,
    "own tokenizer": own_tokenizer,
    "module of another package": foreign_module,
    "module outside the folder": module_outside,
    "many layers": config(num_hidden_layers=10**9),
    "large hidden size": config(hidden_size=10**9),
    "large hidden size of another family": config(model_type="roberta", hidden_size=10**6, num_attention_heads=10**6),
    "many layers of another family": config(model_type="roberta", num_hidden_layers=10**6),
    "deep configuration": deep_config,
    "truncated weights": truncated_weights,
    "huge header": huge_header,
    "invalid expression in the tokenizer": catastrophic_tokenizer,
    "graph: data outside": onnx_model(data_outside),
    "graph: custom operator": onnx_model(custom_operator),
    "graph: huge tensor": onnx_model(huge_tensor),
    "graph: huge result": onnx_model(huge_result),
    "graph: truncated": onnx_model(b"\xff\xff"),
}


# ---- tables


def parquet(path: Path, rows: int = 1_000) -> bytes:
    pq.write_table(pa.table({"text": [f"text {row}" for row in range(rows)]}), path)
    return path.read_bytes()


def bomb(path: Path) -> None:
    """Write 4 GB of equal characters, in one row group, into a small file."""
    column = pa.DictionaryArray.from_arrays(np.zeros(4_000, np.int32), ["a" * 1_000_000])
    pq.write_table(pa.table({"text": column}), path, compression="zstd", store_schema=False)


PARQUETS: dict[str, Callable[[Path], object]] = {
    "truncated": lambda path: path.write_bytes(parquet(path)[:-50]),
    "absurd footer": lambda path: path.write_bytes(parquet(path)[:-8] + (2**31 - 1).to_bytes(4, "little") + b"PAR1"),
    "damaged footer": lambda path: path.write_bytes(parquet(path)[:-100] + b"\xff" * 92 + parquet(path)[-8:]),
    "another schema": lambda path: pq.write_table(pa.table({"id": [1], "texts": [1.5]}), path),
    "bomb": bomb,
}


def store(write: Callable[[Path], object], name: str = "dialogues-a-00000.parquet") -> Callable[[Path], None]:
    def make(folder: Path) -> None:
        folder.mkdir()
        manifest = {"format": 1, "generation": "a", "dialogues": 1, "files": [{"name": name}]}
        (folder / "manifest.json").write_text(json.dumps(manifest))
        write(folder / name)

    return make


def log(write: Callable[[Path], object]) -> Callable[[Path], None]:
    def make(folder: Path) -> None:
        folder.mkdir()
        write(folder / "log.parquet")

    return make


def map_with(write: Callable[[Path], object]) -> Callable[[Path], None]:
    def make(folder: Path) -> None:
        small_map().save(folder)
        write(folder)

    return make


def classifier(write: Callable[[Path], object]) -> Callable[[Path], None]:
    def make(folder: Path) -> None:
        IntentClassifier(BagOfWords()).fit(*pairs()).save(folder, encoder_name="bag")
        write(folder)

    return make


def no_digests(folder: Path) -> None:
    change_json(folder / "map.json", files={})


OTHERS: dict[str, Callable[[Path], None]] = {
    **{f"store {name}": store(write) for name, write in PARQUETS.items()},
    "store outside": store(lambda path: parquet(path), "../outside.parquet"),
    **{f"log {name}": log(write) for name, write in PARQUETS.items() if name not in ("bomb",)},
    "map deep": map_with(lambda folder: (folder / "map.json").write_text(DEEP)),
    "map bomb": map_with(lambda folder: (no_digests(folder), bomb(folder / "utterances.parquet"))),
    "map nan": map_with(
        lambda folder: (
            no_digests(folder),
            save_file({"vectors": np.full((24, 8), np.nan, np.float32)}, folder / "vectors.safetensors"),
        )
    ),
    "classifier deep": classifier(lambda folder: (folder / "intents.json").write_text(DEEP)),
    "classifier outside": classifier(lambda folder: change_json(folder / "intents.json", vectors="../../etc/passwd")),
    "journal deep": classifier(lambda folder: (folder / "changes.jsonl").write_text(DEEP + "\n")),
    "journal odd": classifier(lambda folder: (folder / "changes.jsonl").write_text('{"add": 7}\n')),
}


# ---- Lance tables


def table(change: Callable[[Path], object]) -> Callable[[Path], None]:
    """Return what writes a table without recorded digests, and changes its folder."""

    def make(folder: Path) -> None:
        opened = VectorTable.open(folder, "vectors", size=4, columns=pa.schema([("text", pa.string())]))
        opened.add(["a", "b"], np.eye(4, dtype=np.float32)[:2], {"text": ["a", "b"]})
        (folder / "vectors.lance" / "digests.json").unlink()
        change(folder / "vectors.lance")

    return make


def cut(pattern: str) -> Callable[[Path], object]:
    return lambda folder: [
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]) for path in folder.rglob(pattern)
    ]


def linked(folder: Path) -> None:
    for path in folder.rglob("data/*.lance"):
        path.unlink()
        path.symlink_to("/etc/passwd")


def absurd(pattern: str) -> Callable[[Path], object]:
    """Return what overwrites the sizes and offsets before the last bytes of files, which identify the format."""
    return lambda folder: [
        path.write_bytes(path.read_bytes()[:-40] + b"\xff" * 32 + path.read_bytes()[-8:])
        for path in folder.rglob(pattern)
    ]


OTHERS |= {
    "table data cut": table(cut("data/*.lance")),
    "table manifest cut": table(cut("*.manifest")),
    "table linked": table(linked),
    "table absurd data": table(absurd("data/*.lance")),
    "table absurd manifest": table(absurd("*.manifest")),
}


#: What is loaded without the code beside it.
HARMLESS = ("own tokenizer", "module of another package")

#: What needs transformers, LanceDB or gigabytes, which take their time.
SLOW = ("own", "large hidden size of", "table", "bomb")


@pytest.mark.parametrize("is_slow", [False, pytest.param(True, marks=pytest.mark.full)])
def test_hostile_files_are_refused(is_slow: bool, tmp_path: Path) -> None:
    canary = tmp_path / "canary"
    arguments = {}
    for number, name in enumerate(name for name in [*MODELS, *OTHERS] if any(map(name.__contains__, SLOW)) == is_slow):
        folder = tmp_path / str(number)
        if name in MODELS:
            MODELS[name](folder, canary)
        else:
            OTHERS[name](folder)
        arguments[name] = f"{'model' if name in MODELS else name.split()[0]}={folder}"
    command = [sys.executable, "-m", "tests.helpers.loading_trial", *arguments.values()]
    completed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    assert completed.returncode == 0, completed.stderr
    results = json.loads(completed.stdout.splitlines()[-1])
    for name, argument in arguments.items():
        outcome = results[argument]
        assert outcome["error"] == ("" if name in HARMLESS else "TurnwiseError"), (name, outcome)
        assert name in HARMLESS or outcome["message"].strip()
        assert outcome["megabytes"] < 1_500, (name, outcome)
    assert not canary.exists()
