"""Build the data of the packages turnwise-weights and turnwise-weights-onnx from trained models.

    python weights/build.py --encoder FOLDER --reranker FOLDER
    python weights/build.py --int8

The first command copies what loading needs (no checkpoints, metrics, recipes or curves), stores 32-bit weights in 16
bits, and writes SHA256SUMS. A model that is not given stays as it is. The folders are those that `turnwise train`,
`Encoder.save` and `Reranker.save` write. The second command exports the packaged encoder as an ONNX graph with 8-bit
weights to turnwise-weights-onnx. The model cards are `weights/cards/NAME.md`; without one, a model keeps the card of
its folder.

The configuration says float32, so that turnwise, sentence-transformers and transformers compute in 32 bits after
loading. Rounding to 16 bits moves a vector by less than 1e-3 in cosine.
"""

import argparse
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from safetensors import safe_open
from safetensors.torch import save_file

from turnwise.core.errors import TurnwiseError
from turnwise.core.files import read_json, sha256, write_json
from turnwise.core.model_names import TURNWISE_RERANKER, TURNWISE_SMALL, TURNWISE_SMALL_INT8
from turnwise.models.backbone.source import check_model_folder, is_reranker
from turnwise.models.encoder import Encoder
from turnwise.models.export import export

ROOT = Path(__file__).parent
DATA = ROOT / "src" / "turnwise_weights"
ONNX_DATA = ROOT.parent / "weights-onnx" / "src" / "turnwise_weights_onnx"
CARDS = ROOT / "cards"

CHECKSUMS = "SHA256SUMS"

NAMES = (TURNWISE_SMALL, TURNWISE_RERANKER)

#: Files that are copied as they are, if there: tokenizer, modules of sentence-transformers, settings, training data.
COPIED = (
    *("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"),
    *("vocab.*", "merges.txt", "*.model"),
    *("modules.json", "sentence_bert_config.json", "config_sentence_transformers.json"),
    *("turnwise.json", "training_data.safetensors", "README.md"),
)

#: Files of weights: the transformer, a module of sentence-transformers, and a re-ranker's heads.
WEIGHTS = ("model.safetensors", "heads.safetensors")


class BuildError(TurnwiseError):
    """A folder cannot be released."""


def build(models: Mapping[str, Path], out: Path = DATA, cards: Path = CARDS) -> None:
    """Replace models in a folder, and the checksums.

    Args:
        models: the folders of the trained models, by their packaged names.
        out: the folder of the package.
        cards: the folder of the model cards, NAME.md.
    """
    for name, source in models.items():
        check_source(source, name == TURNWISE_RERANKER)
    out.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix=".building-", dir=out) as temporary:  # a failure leaves the old models
        for name, source in models.items():
            (Path(temporary) / name).mkdir()
            release(source, Path(temporary) / name, cards / f"{name}.md")
        for name in models:
            shutil.rmtree(out / name, ignore_errors=True)
            (Path(temporary) / name).rename(out / name)
    (out / CHECKSUMS).write_text(checksums(out, NAMES), encoding="utf-8")


def build_int8(source: Path, out: Path = ONNX_DATA, cards: Path = CARDS) -> None:
    """Export an encoder's folder as `turnwise-small-int8`, and write the checksums."""
    out.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix=".building-", dir=out) as temporary:  # a failure leaves the old model
        folder = Path(temporary) / TURNWISE_SMALL_INT8
        export(Encoder.load(source, device="cpu"), folder, "onnx-int8")
        card = cards / f"{TURNWISE_SMALL_INT8}.md"
        if card.is_file():
            shutil.copyfile(card, folder / "README.md")
        shutil.rmtree(out / TURNWISE_SMALL_INT8, ignore_errors=True)
        folder.rename(out / TURNWISE_SMALL_INT8)
    (out / CHECKSUMS).write_text(checksums(out, (TURNWISE_SMALL_INT8,)), encoding="utf-8")


def check_source(folder: Path, reranker: bool) -> None:
    """Make sure that a folder holds a trained encoder or a re-ranker."""
    check_model_folder(folder)
    if is_reranker(folder) != reranker:
        expected, option = ("a re-ranker", "--reranker") if reranker else ("an encoder", "--encoder")
        raise BuildError(f"{folder} is not {expected} ({option}): did you swap the two folders?")
    for name in ("modules.json", "turnwise.json", "model.safetensors"):
        if not (folder / name).is_file():
            raise BuildError(f"{folder} has no {name}: give a folder that `turnwise train` or `save` wrote")


def release(source: Path, target: Path, card: Path) -> None:
    """Copy what a released model needs into an empty folder, with its weights in half precision."""
    for path in sorted({path for pattern in COPIED for path in source.glob(pattern)}):
        shutil.copyfile(path, target / path.name)
    if card.is_file():
        shutil.copyfile(card, target / "README.md")
    config = {key: value for key, value in read_json(source / "config.json").items() if key != "_name_or_path"}
    config.pop("torch_dtype", None)  # the former name of dtype
    write_json(target / "config.json", {**config, "dtype": "float32"})
    modules = {module["path"] for module in read_json(source / "modules.json")} - {""}
    for folder in ("", *sorted(modules)):
        if folder and (source / folder / "config.json").is_file():  # 'Normalize' has no files and needs no folder
            (target / folder).mkdir()
            shutil.copyfile(source / folder / "config.json", target / folder / "config.json")
        for name in WEIGHTS:
            if (source / folder / name).is_file():
                write_halves(source / folder / name, target / folder / name)


def write_halves(source: Path, target: Path) -> None:
    """Copy a safetensors file with its float32 tensors as float16; raise BuildError if a value is out of range."""
    with safe_open(source, "pt") as file:
        metadata = file.metadata()
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    for name, tensor in tensors.items():
        if tensor.dtype == torch.float32:
            tensors[name] = tensor.half()
            if not tensors[name].isfinite().all():
                raise BuildError(f"{source}: {name} has values that 16 bits cannot hold")
    save_file(tensors, target, metadata)
    target.chmod(0o644)  # safetensors writes files that only their owner can read


def checksums(folder: Path, names: Sequence[str]) -> str:
    """Return the lines of SHA256SUMS, as `sha256sum --check` reads them, for all files of the models."""
    files = sorted(path for name in names for path in (folder / name).rglob("*") if path.is_file())
    return "".join(f"{sha256(path)}  {path.relative_to(folder).as_posix()}\n" for path in files)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description="Build the data of turnwise-weights and turnwise-weights-onnx.")
    parser.add_argument("--encoder", type=Path, help="folder of the trained encoder")
    parser.add_argument("--reranker", type=Path, help="folder of the trained re-ranker")
    parser.add_argument("--int8", action="store_true", help="export the packaged encoder to turnwise-weights-onnx")
    parser.add_argument("--out", type=Path, default=DATA, help="folder to write; by default that of the package")
    options = parser.parse_args(arguments)
    given = {TURNWISE_SMALL: options.encoder, TURNWISE_RERANKER: options.reranker}
    models = {name: folder for name, folder in given.items() if folder}
    if not models and not options.int8:
        parser.error("give --encoder, --reranker or --int8")
    try:
        if models:
            build(models, options.out)
        if options.int8:
            build_int8(options.out / TURNWISE_SMALL)
    except TurnwiseError as error:
        parser.exit(1, f"{error}\n")
    for name in models:
        size = sum(path.stat().st_size for path in (options.out / name).rglob("*") if path.is_file())
        sys.stdout.write(f"{options.out / name}: {size / 2**20:,.1f} MiB\n")


if __name__ == "__main__":
    main()
