"""Options and arguments that several commands share."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from typer import Argument, Option

from turnwise.core import registry


def _parent_must_exist(path: Path | None) -> Path | None:
    if path is not None and not path.absolute().parent.is_dir():
        raise typer.BadParameter(f"the folder {path.absolute().parent} does not exist")
    return path


def out_file(*suffixes: str, help: str) -> object:
    """Return an option for a file to write; its folder must exist and its suffix be one of `suffixes`."""

    def check(path: Path | None) -> Path | None:
        if path is not None and path.suffix not in suffixes:
            raise typer.BadParameter(f"{path} does not end in {' or '.join(suffixes)}")
        return _parent_must_exist(path)

    return Option(dir_okay=False, help=help, callback=check)


AsJson = Annotated[bool, Option("--json", help="Print JSON instead of text.")]
Model = Annotated[str, Option(help="Encoder: turnwise-small, minilm, a model folder or a Hugging Face id.")]
OptionalModel = Annotated[
    str | None,
    Option(
        help="Encoder: turnwise-small, minilm, a model folder or a Hugging Face id. By default the project's, or "
        "turnwise-small."
    ),
]
ModelArgument = Annotated[str, Argument(help="turnwise-small, minilm, a model folder or a Hugging Face id.")]
Splits = Annotated[
    list[str] | None,
    Option(
        "--split", metavar="SPLIT", help="Only dialogues of this split, and all of stores without splits; repeatable."
    ),
]
Speakers = Annotated[
    list[str] | None, Option("--speaker", metavar="SPEAKER", help="Only turns of this speaker; repeatable.")
]
TrainingCorpora = Annotated[list[Path], Option("--corpus", metavar="STORE", help="Store to train on; repeatable.")]
Overrides = Annotated[
    list[str] | None, Option("--set", metavar="KEY=VALUE", help="Override a key, as key=value; repeatable.")
]
Rebuild = Annotated[
    bool, Option("--rebuild", help="Remove what the table holds first: for another encoder, or changed conversations.")
]
Force = Annotated[bool, Option("--force", help="Replace an earlier export in OUT.")]
TableOut = Annotated[
    str | None,
    Option(
        "--out",
        help="Table folder, or its URI on object storage (s3://…, gs://…); inside a project, its own by default.",
    ),
]
Seed = Annotated[int, Option(min=0, help="Random seed.")]

_DATA_HELP = "Folder of data sets, or a sample store."
Data = Annotated[Path, Option(envvar="TURNWISE_DATA", help=_DATA_HELP)]
OptionalData = Annotated[Path | None, Option(envvar="TURNWISE_DATA", help=_DATA_HELP)]
Datasets = Annotated[list[str] | None, Option("--dataset", metavar="NAME", help="Only this data set; repeatable.")]


def registered(kind: registry.Kind) -> Callable[[Any], Any]:
    """Return a callback of an option with a name or a list of names, which must be registered."""

    def check(names: Any) -> Any:
        for name in (names,) if isinstance(names, str) else names or ():
            registry.check_name(kind, name)
        return names

    return check


Suites = Annotated[
    list[str] | None,
    Option(
        "--suite",
        metavar="SUITE",
        callback=registered("suite"),
        help="Evaluate a suite: dse, diaeval, …; repeatable.",
    ),
]
OneSuite = Annotated[
    str | None,
    Option(
        "--suite",
        callback=registered("suite"),
        help=f"Fill the tables of a paper: {', '.join(registry.known_names('suite'))}.",
    ),
]
Tasks = Annotated[
    list[str] | None,
    Option(
        "--task",
        metavar="TASK",
        callback=registered("task"),
        help="Evaluate a task: intents, responses, …; repeatable.",
    ),
]
FineTuning = Annotated[bool, Option(help="Also run the tasks that fine-tune the encoder.")]
EvaluationSeeds = Annotated[
    int | None, Option("--seeds", min=1, help="Fewer runs than the protocol asks for; results say so.")
]
EvaluationSteps = Annotated[
    int | None, Option("--steps", min=1, help="Fewer training steps within the evaluation; results say so.")
]
PoolingName = Annotated[
    Literal["mean", "cls", "cls-mlp", "max", "first-last"] | None,
    Option("--pooling", help="Pooling instead of the model's own."),
]
RuntimeName = Annotated[
    Literal["onnxruntime", "openvino"] | None,
    Option("--runtime", help="Library that runs an ONNX model; onnxruntime by default, openvino is faster on x86."),
]
Compressed = Annotated[
    bool, Option("--compressed", help="Apply the semantic compression (TaDSE) stored in the model folder.")
]


def parse_key_values(words: list[str] | None, option: str = "--set") -> list[tuple[str, str]]:
    """Split words of the form key=value."""
    pairs = []
    for word in words or ():
        key, equals, value = word.partition("=")
        if not equals or not key:
            raise typer.BadParameter(f"expected key=value, got {word!r}", param_hint=option)
        pairs.append((key, value))
    return pairs
