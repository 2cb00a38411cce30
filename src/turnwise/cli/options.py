"""Options that several commands share, and arguments that may be left out inside a project."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from typer import Argument, Option
from typer.core import TyperArgument, TyperCommand

import turnwise
from turnwise.cli.output import message
from turnwise.core import registry
from turnwise.core.model_names import DEFAULT_ENCODER, LANGUAGES, USE_MULTILINGUAL
from turnwise.core.project import Part, Project

if TYPE_CHECKING:
    from turnwise.corpus.storage.corpus import Corpus


def out_file(*suffixes: str, help: str) -> object:
    """Return an option for a file to write; its folder must exist and its suffix be one of `suffixes`."""

    def check(path: Path | None) -> Path | None:
        if path is not None and path.suffix not in suffixes:
            raise typer.BadParameter(f"{path} does not end in {' or '.join(suffixes)}")
        if path is not None and not path.absolute().parent.is_dir():
            raise typer.BadParameter(f"the folder {path.absolute().parent} does not exist")
        return path

    return Option(dir_okay=False, help=help, callback=check)


def registered(kind: registry.Kind) -> Callable[[Any], Any]:
    """Return a callback of an option with a name or a list of names, which must be registered."""

    def check(names: Any) -> Any:
        for name in (names,) if isinstance(names, str) else names or ():
            registry.check_name(kind, name)
        return names

    return check


_LANGUAGES = " ".join(sorted(LANGUAGES[USE_MULTILINGUAL]))
#: The encoders that are packaged, with the languages that they read.
PACKAGED_ENCODERS = f"turnwise-small or minilm (English), use-multilingual ({_LANGUAGES})"
NAMES = f"{PACKAGED_ENCODERS}, a model folder or a Hugging Face id"
_DATA = "Folder of data sets, or a sample store."

AsJson = Annotated[bool, Option("--json", help="Print JSON instead of text.")]
Model = Annotated[str, Option(help=f"Encoder: {NAMES}.")]
OptionalModel = Annotated[str | None, Option(help=f"Encoder: {NAMES}. By default the project's, or {DEFAULT_ENCODER}.")]
ModelArgument = Annotated[str, Argument(help=f"{NAMES}.")]
OptionalReranker = Annotated[
    str | None, Option(help="Re-ranker: turnwise-reranker (English), a model folder or a Hugging Face id.")
]
Splits = Annotated[
    list[str] | None,
    Option("--split", metavar="SPLIT", help="Only this split, and all of stores without splits; repeatable."),
]
Speakers = Annotated[
    list[str] | None, Option("--speaker", metavar="SPEAKER", help="Only turns of this speaker; repeatable.")
]
TrainingCorpora = Annotated[
    list[Path] | None,
    Option("--corpus", metavar="STORE", help="Store to train on, by default the project's; repeatable."),
]
TrainingSplits = Annotated[
    list[str] | None,
    Option("--split", metavar="SPLIT", help="Train on this split, by default train if there is one; repeatable."),
]
Overrides = Annotated[
    list[str] | None, Option("--set", metavar="KEY=VALUE", help="Override a key, as key=value; repeatable.")
]
ReaderOptions = Annotated[
    list[str] | None, Option("--set", metavar="KEY=VALUE", help="Option of the reader, as key=value; repeatable.")
]
Regions = Annotated[
    list[str] | None,
    Option(
        "--region",
        metavar="COUNTRY",
        help="mask: country of phone numbers, such as DE; guessed from the log by default; repeatable.",
    ),
]
MaskPatterns = Annotated[
    list[str] | None,
    Option(metavar="NAME=REGEX", help="mask: a further kind, such as 'order=[A-Z]{2}-[0-9]{6}'; repeatable."),
]
MaskLists = Annotated[
    list[str] | None, Option(metavar="NAME=FILE", help="mask: a further kind, a file of texts; repeatable.")
]
MaskEntities = Annotated[
    str | None,
    Option(
        metavar="RECOGNISER",
        help="mask: names that a spaCy model finds, as in spacy:fr_core_news_md, or module:function that returns "
        "(start, end, label).",
    ),
]
Pseudonyms = Annotated[bool, Option("--pseudonyms", help="mask: number what is masked, as in [NAME_2].")]
StoreOut = Annotated[Path, Option("--out", help="Store to write; an existing one is replaced once complete.")]
Rebuild = Annotated[
    bool, Option("--rebuild", help="Empty the table first: for another encoder, or for changed conversations.")
]
Force = Annotated[bool, Option("--force", help="Replace an earlier export in OUT.")]
Table = Annotated[str, Argument(help="Table folder, or its URI on object storage.")]
TableOut = Annotated[
    str | None,
    Option("--out", help="Table folder, or its URI on object storage (s3://…); in a project, its own."),
]
Seed = Annotated[int, Option(min=0, help="Random seed.")]
Projection = Annotated[Literal["umap", "tsne"], Option("--method", help="Projection to two dimensions.")]
MinClusterSize = Annotated[
    int | None, Option(min=2, help="Minimum size of a cluster; by default it depends on the data.")
]
Head = Annotated[
    Literal["auto", "neighbours", "prototypes", "logistic"] | None,
    Option(help="Classification head; auto, the default: chosen by cross-validation."),
]
Port = Annotated[int, Option(min=0, max=65_535, help="Port to listen on; 0: any free port.")]
Data = Annotated[Path, Option(envvar="TURNWISE_DATA", help=_DATA)]
OptionalData = Annotated[Path | None, Option(envvar="TURNWISE_DATA", help=_DATA)]
Datasets = Annotated[list[str] | None, Option("--dataset", metavar="NAME", help="Only this data set; repeatable.")]
Suites = Annotated[
    list[str] | None,
    Option("--suite", metavar="SUITE", callback=registered("suite"), help="Suite: dse, diaeval, …; repeatable."),
]
Tasks = Annotated[
    list[str] | None,
    Option("--task", metavar="TASK", callback=registered("task"), help="Task: intents, responses, …; repeatable."),
]
FineTuning = Annotated[bool, Option(help="Also run the tasks that fine-tune the encoder.")]
EvaluationSeeds = Annotated[
    int | None, Option("--seeds", min=1, help="Number of runs, if fewer than in the protocol; the results note it.")
]
EvaluationSteps = Annotated[
    int | None, Option("--steps", min=1, help="Training steps in evaluation, if fewer than in the protocol.")
]
PoolingName = Annotated[
    Literal["mean", "cls", "cls-mlp", "max", "first-last"] | None,
    Option("--pooling", help="Pooling instead of the model's own."),
]
RuntimeName = Annotated[
    Literal["onnxruntime", "openvino"] | None,
    Option("--runtime", help="Runs ONNX models; onnxruntime by default, openvino is faster on x86."),
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


# ---- inside a project


def require_project(parameter: str) -> Project:
    """Return the current project, for a parameter that was left out; outside a project that is an error."""
    project = Project.find()
    if project is None:
        raise typer.BadParameter("it must be given outside a project (see `turnwise start`)", param_hint=parameter)
    return project


def project_part(part: Part, parameter: str) -> Path:
    """Return the folder of the current project's part, for a parameter that was left out."""
    return require_project(parameter).part(part)


def read_training_corpus(stores: list[Path] | None, splits: list[str] | None) -> "Corpus":
    """Return what to train on: stores, or the current project's; unless splits are named, only 'train' of those."""
    read = turnwise.read_corpus(*(stores or [project_part("store", "--corpus")]), splits=splits or None)
    if splits is None and any("train" in store.splits() for store in read.stores):
        message("training on the split 'train'; name splits with --split to use others")
        return turnwise.read_corpus(*(store.folder for store in read.stores), splits=["train"])
    return read


def model_or_default(given: str | None) -> str:
    """Return a model that was given, or else that of the project, or the default."""
    if given is not None:
        return given
    project = Project.find()
    return DEFAULT_ENCODER if project is None else project.model


def project_command(part: Part) -> type[TyperCommand]:
    """Return a class of commands whose first argument is a folder that may be left out inside a project.

    The folder of the project's part is inserted unless the first argument is an existing folder.
    """

    class ProjectCommand(TyperCommand):
        def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
            project = None if ctx.resilient_parsing else Project.find()
            if project is not None and not self._names_folder(ctx, args):
                args = [str(project.part(part)), *args]
            return super().parse_args(ctx, args)

        def _names_folder(self, ctx: Any, args: list[str]) -> bool:
            """Return whether the first argument is an existing folder, or help is requested."""
            values: dict[str, Any] = self.make_parser(ctx).parse_args(list(args))[0]
            given = values.get(next(each.name or "" for each in self.params if isinstance(each, TyperArgument)))
            if isinstance(given, list | tuple):
                given = given[0] if given else None
            return bool(values.get("help")) or (isinstance(given, str) and ("://" in given or Path(given).is_dir()))

    return ProjectCommand
