"""`turnwise intents`: what texts ask for, told from a few examples."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from turnwise.cli.terminal import AsJson, bar, print_json, print_table, quiet

if TYPE_CHECKING:
    from collections.abc import Sequence

    from turnwise.assist.intents.classifier import IntentClassifier
    from turnwise.assist.intents.decision import Decision

intents_app = typer.Typer(help="Tell what texts ask for, from a few examples of each intent.", no_args_is_help=True)
examples_app = typer.Typer(help="Add and remove the examples of a classifier.", no_args_is_help=True)
intents_app.add_typer(examples_app, name="examples")

_HEADS = ("neighbours", "prototypes", "logistic")

Folder = Annotated[
    Path, typer.Argument(file_okay=False, help="A classifier's folder, as `turnwise intents fit` makes it.")
]
Table = Annotated[Path, typer.Argument(help="Texts with their intents: .csv, .tsv, .jsonl, .parquet, or a store.")]
TextColumn = Annotated[str, typer.Option("--text", help="The column of texts.")]
IntentColumn = Annotated[str, typer.Option("--intent", help="The column of intents.")]
Rate = Annotated[
    float | None,
    typer.Option(
        help="The share of texts in scope that it may turn away, between 0 and 1; 0: it never abstains.",
        min=0,
        max=0.99,
    ),
]


@intents_app.command("fit")
def fit_command(
    examples: Table,
    out: Annotated[Path, typer.Option(file_okay=False, help="The classifier's folder.")],
    model: Annotated[str, typer.Option(help="The encoder: minilm, a folder, a Hugging Face id.")] = "minilm",
    head: Annotated[str, typer.Option(help=f"What tells intents: {', '.join(_HEADS)}.")] = _HEADS[0],
    neighbours: Annotated[
        int, typer.Option(min=1, help="How many examples of an intent count, for the head neighbours.")
    ] = 5,
    false_rejection: Rate = 0.05,
    per_intent: Annotated[bool, typer.Option(help="A threshold for each intent.")] = False,
    tune: Annotated[
        int | None, typer.Option(min=1, help="Fit the encoder to the examples first, for so many epochs.")
    ] = None,
    text: TextColumn = "text",
    intent: IntentColumn = "intent",
    as_json: AsJson = False,
) -> None:
    """Fits a classifier on examples, and calibrates it on these alone.

    Rows without an intent are left out; those of the intent 'out_of_scope' are examples of what it is to abstain from.

    Example: `turnwise intents fit examples.csv --out intents`
    """
    # before what takes seconds to import
    if head not in _HEADS:
        raise typer.BadParameter(f"{head!r} is none of {', '.join(_HEADS)}", param_hint="--head")
    from turnwise.assist.intents.examples import IntentError
    from turnwise.assist.intents.labelled_texts import read_labelled
    from turnwise.assist.intents.storage import is_classifier

    pairs = read_labelled(examples, text, intent)
    if out.is_dir() and any(out.iterdir()) and not is_classifier(out):
        raise IntentError(f"{out} holds something that is no classifier of intents: name another folder")
    quiet()
    from turnwise.assist.intents.classifier import IntentClassifier
    from turnwise.assist.intents.folder import replace_classifier

    tuning = None
    if tune is not None:
        from turnwise.assist.intents.tuning import Tuning

        tuning = Tuning(epochs=tune)
    classifier = IntentClassifier(
        model,
        head=head,  # type: ignore[arg-type]
        neighbours=neighbours,
        false_rejection=false_rejection or None,
        per_intent=per_intent,
        tuning=tuning,
    )
    with bar() as progress:
        progress("fitting", 0)
        classifier.fit([said for said, _ in pairs], [asked for _, asked in pairs], progress=progress)
    replace_classifier(classifier, out)
    _say(out, classifier, as_json)


@intents_app.command("predict")
def predict_command(
    folder: Folder,
    texts: Annotated[list[str] | None, typer.Argument(help="What was said.")] = None,
    file: Annotated[
        Path | None, typer.Option(dir_okay=False, help="Read texts from a file: .txt, .csv, .tsv, .jsonl, .parquet.")
    ] = None,
    text: TextColumn = "text",
    neighbours: Annotated[int, typer.Option(min=0, help="How many of the nearest examples to show.")] = 3,
    several: Annotated[bool, typer.Option(help="Look for several intents in a text.")] = False,
    as_json: AsJson = False,
) -> None:
    """Says what texts ask for, and why; or that they ask for none of the intents.

    Example: `turnwise intents predict intents "where is my parcel"`

    Example: `turnwise intents predict intents --file messages.csv --json`
    """
    if bool(texts) == (file is not None):
        raise typer.BadParameter("give texts, or a file of them", param_hint="TEXTS / --file")
    from turnwise.assist.intents.labelled_texts import read_texts

    asked = list(texts or ()) if file is None else read_texts(file, text)
    quiet()
    from turnwise.assist.intents.folder import read_classifier

    decisions = read_classifier(folder).decide(asked, neighbours=neighbours, several=several)
    if as_json:
        print_json([asdict(decision) for decision in decisions])
    else:
        _print(decisions)


@intents_app.command("calibrate")
def calibrate_command(
    folder: Folder,
    texts: Table,
    false_rejection: Rate = None,
    text: TextColumn = "text",
    intent: IntentColumn = "intent",
    as_json: AsJson = False,
) -> None:
    """Calibrates a classifier on texts that it was not fitted on; that stays in force when examples are added.

    Example: `turnwise intents calibrate intents validation.csv --false-rejection 0.02`
    """
    from turnwise.assist.intents.examples import IntentError
    from turnwise.assist.intents.labelled_texts import read_labelled

    if false_rejection == 0:
        raise IntentError("a classifier that never abstains needs no calibration: give a rate above 0")
    pairs = read_labelled(texts, text, intent)
    quiet()
    from turnwise.assist.intents.folder import IntentFolder

    with IntentFolder.open(folder) as opened:
        opened.classifier.calibrate(
            [said for said, _ in pairs], [asked for _, asked in pairs], false_rejection=false_rejection
        )
        opened.compact()
        _say(folder, opened.classifier, as_json)


@examples_app.command("add")
def add_command(
    folder: Folder,
    intent: Annotated[
        str, typer.Argument(help="The intent, which may be new; 'out_of_scope' for what is none of them.")
    ],
    texts: Annotated[list[str], typer.Argument(help="What people say that ask for it.")],
    as_json: AsJson = False,
) -> None:
    """Adds examples of an intent, without any training.

    Example: `turnwise intents examples add intents refund "I want my money back" "please refund me" "can I get a refund"`
    """
    quiet()
    from turnwise.assist.intents.folder import IntentFolder

    with IntentFolder.open(folder) as opened:
        count = opened.add([(text, intent) for text in texts])
        known = len(opened.classifier.classes_)
    if as_json:
        print_json({"added": count, "intents": known})
    else:
        typer.echo(f"{count:,} new examples of {intent}; {known:,} intents")


@examples_app.command("remove")
def remove_command(
    folder: Folder,
    intent: Annotated[str, typer.Argument(help="The intent.")],
    texts: Annotated[
        list[str] | None, typer.Argument(help="The examples; none: all of the intent's, and with them the intent.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Removes examples of an intent, or the intent.

    Example: `turnwise intents examples remove intents refund`
    """
    quiet()
    from turnwise.assist.intents.examples import IntentError
    from turnwise.assist.intents.folder import IntentFolder

    with IntentFolder.open(folder) as opened:
        if not opened.classifier.pairs_of(intent):
            raise IntentError(f"there is no example of {intent!r}: {folder}/intents.json lists those that there are")
        count = opened.remove([(text, intent) for text in texts]) if texts else opened.remove(intent=intent)
        known = len(opened.classifier.classes_)
    if as_json:
        print_json({"removed": count, "intents": known})
    else:
        typer.echo(f"{count:,} examples of {intent} removed; {known:,} intents")


def _say(folder: Path, classifier: "IntentClassifier", as_json: bool) -> None:
    from turnwise.assist.intents.storage import calibration_as_json

    calibration, examples = classifier.calibration_, classifier.fitted_.examples
    counts = {"intents": len(examples.classes), "examples": len(examples.labels), "out_of_scope": len(examples.outside)}
    if as_json:
        described: dict[str, Any] = {**counts, "calibration": calibration_as_json(calibration)}
        print_json({"folder": str(folder), "head": classifier.head, **described})
        return
    rows = [("learnt from", f"{counts['examples']:,} examples of {counts['intents']:,} intents")]
    if counts["out_of_scope"]:
        rows.append(("out of scope", f"{counts['out_of_scope']:,} examples"))
    rows.append(("head", classifier.head))
    if calibration.threshold is None:
        rows.append(("abstains", "never"))
    else:
        each = " on average, one for each intent" if calibration.offsets else ""
        rows.append(
            (
                "abstains",
                f"below a score of {calibration.threshold:.3f}{each}: {calibration.false_rejection:.1%} of texts in scope",
            )
        )
    if calibration.out_of_scope_recall is not None:
        rows.append(("turns away", f"{calibration.out_of_scope_recall:.1%} of the out-of-scope texts"))
    if calibration.texts:
        source = "held-out texts" if calibration.held_out else "examples, each left out in turn"
        rows.append(
            (
                "calibrated on",
                f"{calibration.texts:,} {source}; calibration error of probabilities {calibration.reliability.ece:.3f}",
            )
        )
    print_table(f"[bold]{folder}", rows)


def _print(decisions: "Sequence[Decision]") -> None:
    from rich.console import Console
    from rich.text import Text

    console = Console()
    for number, decision in enumerate(decisions):
        if number:
            console.print()
        console.print(Text(decision.text, style="bold"))
        console.print(
            Text(
                f"  {', '.join(decision.intents) or 'none of the intents'}",
                style="yellow" if decision.abstained else "green",
            )
        )
        console.print(Text(f"  {decision.reason}", style="dim"))
        for near in decision.nearest[1:]:
            console.print(Text(f"  {near.similarity:.2f}  {near.intent}: {near.text}", style="dim"))
