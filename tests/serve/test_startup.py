"""What a service imports and computes before it is ready."""

import asyncio
import importlib.util
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.helpers.served import served
from tests.helpers.trial import build
from turnwise.core.errors import MissingPackageError
from turnwise.core.model_names import TURNWISE_SMALL_INT8
from turnwise.models.encoder import Encoder
from turnwise.models.trainable_encoder import TrainableEncoder
from turnwise.serve.errors import ServiceError
from turnwise.serve.models import LoadedModels, check_settings
from turnwise.serve.observability import ServiceMetrics
from turnwise.serve.service import Service
from turnwise.serve.settings import ServeSettings

#: Starts a service with everything that `build` creates, and prints the modules that are imported when it is ready.
START = """
import json, sys
from pathlib import Path
from turnwise.serve.models import LoadedModels
from turnwise.serve.observability import ServiceMetrics
from turnwise.serve.server import Server
from turnwise.serve.settings import ServeSettings
model, place = sys.argv[1], Path(sys.argv[2])
tables = {name: str(place / name) for name in ("responses", "conversations")}
settings = ServeSettings(model=model, intents=place / "intents", map=place / "map", **tables)
Server(settings)
models = LoadedModels(settings, ServiceMetrics(lambda: 0, lambda: 1))
models.open_journals()
assert models.intents and models.responder and models.conversations and models.labelling
models.close_journals()
models.stop()
print(json.dumps(sorted(sys.modules)))
"""


#: What no service needs; packages, and modules of torch that take long to import.
UNUSED = {
    *("transformers", "accelerate", "sklearn", "scipy", "umap", "matplotlib", "datasets", "sympy", "triton"),
    *("torch._dynamo", "torch._inductor", "torch.distributed.tensor"),
}


def modules_of_a_service(model: str | Path, place: Path) -> set[str]:
    """Return the modules that a service with everything in a folder imports."""
    result = subprocess.run(
        [sys.executable, "-c", START, str(model), str(place)], capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    modules = set(json.loads(result.stdout.splitlines()[-1]))
    assert "lancedb" in modules
    assert "lance_namespace_urllib3_client.api" not in modules  # LanceDB's REST client
    return modules


def test_the_8_bit_model_is_served_without_heavy_imports(tmp_path: Path) -> None:
    build(tmp_path, TURNWISE_SMALL_INT8, dialogues=2, with_reranker=False)
    assert not modules_of_a_service(TURNWISE_SMALL_INT8, tmp_path) & {"torch", *UNUSED}


def test_a_torch_model_is_served_with_torch_alone(tiny_folder: Callable[[str], Path], tmp_path: Path) -> None:
    build(tmp_path, tiny_folder("bert"), dialogues=2, with_reranker=False)
    modules = modules_of_a_service(tiny_folder("bert"), tmp_path)
    assert "torch" in modules
    assert not modules & UNUSED


def test_changes_are_refused_until_the_models_are_loaded() -> None:
    with pytest.raises(ServiceError, match="the service is loading"):
        asyncio.run(Service(ServeSettings()).change(lambda _: None))


@pytest.mark.full
def test_the_8_bit_model_is_served_with_openvino(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = ServeSettings(model=TURNWISE_SMALL_INT8, runtime="openvino")
    with served(settings) as client:
        vectors = client.post("/embed", json={"inputs": ["where is my parcel?"]}).json()["vectors"]
    expected = Encoder.load(TURNWISE_SMALL_INT8, runtime="openvino").encode(["where is my parcel?"])
    np.testing.assert_allclose(vectors, expected, atol=1e-6)
    assert settings.served() == {"model": TURNWISE_SMALL_INT8, "runtime": "openvino"}
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(MissingPackageError, match=r"pip install 'turnwise\[openvino\]'"):
        check_settings(settings)


def test_the_weights_are_hashed_once(
    tiny_folder: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = build(tmp_path, tiny_folder("bert"), with_reranker=False)
    hash_weights, hashed = TrainableEncoder.weights_fingerprint, []
    monkeypatch.setattr(TrainableEncoder, "weights_fingerprint", lambda self: hashed.append(self) or hash_weights(self))
    models = LoadedModels(settings, ServiceMetrics(lambda: 0, lambda: 1))
    models.open_journals()
    models.close_journals()
    models.stop()
    assert models.intents and models.responder and models.conversations
    assert hashed == [models.batcher.encoder]
