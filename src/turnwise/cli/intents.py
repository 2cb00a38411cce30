"""`turnwise intents`: fit, apply, calibrate and diagnose intent classifiers."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from typer import Argument, Option

import turnwise
from turnwise.cli.corpus import export_report
from turnwise.cli.help import command_group
from turnwise.cli.options import AsJson, Force, OptionalModel, Seed, out_file
from turnwise.cli.output import Block, columns, excerpt, facts, lines, message, progress_bar, show
from turnwise.cli.project import model_or_default, project_command, project_part
from turnwise.core.model_names import DEFAULT_ENCODER

if TYPE_CHECKING:
    from turnwise.assist.intents.classifier import IntentClassifier
    from turnwise.assist.intents.decision import Decision
    from turnwise.assist.intents.examples import IntentPair
    from turnwise.assist.intents.prediction_files import PredictionCounts
    from turnwise.assist.intents.report import IntentReport
    from turnwise.assist.intents.testing import ClassifierTest, Estimate

intents_app = command_group("Classify intents from a few examples each, with abstention.")
examples_app = command_group("Add, remove and export examples of a classifier.")
intents_app.add_typer(examples_app, name="examples")

#: Commands on a classifier, which may be left out inside a project.
_InFolder = project_command("intents")

HeadChoice = Literal["auto", "neighbours", "prototypes", "logistic"]

Folder = Annotated[Path, Argument(file_okay=False, help="Classifier folder, written by `turnwise intents fit`.")]
LabelledTexts = Annotated[Path, Argument(help="Texts with intents: a .csv, .tsv, .jsonl or .parquet file, or a store.")]
TextColumn = Annotated[str, Option("--text", help="Text column.")]
IntentColumn = Annotated[str, Option("--intent", help="Intent column.")]
FalseRejection = Annotated[
    float | None, Option(help="Fraction of in-scope texts that may be rejected; 0: never abstain.", min=0, max=0.99)
]

#: Number of diagnostics of each kind that the terminal shows.
_MAX_DIAGNOSTICS = 5

#: Number of intents of a test that the terminal shows.
_MAX_INTENTS = 20


@intents_app.command("fit")
def fit_command(
    examples: LabelledTexts,
    out: Annotated[
        Path | None, Option(file_okay=False, help="Classifier folder to write; inside a project, its own by default.")
    ] = None,
    model: OptionalModel = None,
    head: Annotated[HeadChoice, Option(help="Classification head; auto: chosen by cross-validation.")] = "auto",
    neighbours: Annotated[
        int, Option(min=1, help="Nearest examples of an intent to use, for the head neighbours.")
    ] = 5,
    false_rejection: FalseRejection = 0.05,
    per_intent: Annotated[bool, Option(help="Use one threshold per intent.")] = False,
    tune: Annotated[
        int | None, Option(min=1, help="Fine-tune the encoder on the examples first, for this many epochs.")
    ] = None,
    text: TextColumn = "text",
    intent: IntentColumn = "intent",
    as_json: AsJson = False,
) -> None:
    """Fit a classifier on examples and calibrate it on them.

    Rows without an intent are skipped; rows with the intent 'out_of_scope' are examples of texts to reject.

    Example: `turnwise intents fit examples.csv --out intents`
    """
    from turnwise.assist.intents.examples import read_labelled
    from turnwise.assist.intents.storage import is_classifier, replace_classifier
    from turnwise.core.errors import IntentError

    out = out or project_part("intents", "--out")
    pairs = read_labelled(examples, text, intent)
    if out.is_dir() and any(out.iterdir()) and not is_classifier(out):
        raise IntentError(f"{out} exists and is not an intent classifier: choose another folder")
    classifier = _make_classifier(
        model=model_or_default(model),
        head=head,
        neighbours=neighbours,
        false_rejection=false_rejection,
        per_intent=per_intent,
        tune=tune,
    )
    with progress_bar() as progress:
        progress("fitting", 0)
        classifier.fit([text for text, _ in pairs], [intent for _, intent in pairs], progress=progress)
    replace_classifier(classifier, out)
    _show_classifier(out, classifier, as_json)


@intents_app.command("predict", cls=_InFolder)
def predict_command(
    folder: Folder,
    texts: Annotated[list[str] | None, Argument(help="Texts to classify.")] = None,
    file: Annotated[
        Path | None, Option(dir_okay=False, help="Read texts from a .txt, .csv, .tsv, .jsonl or .parquet file.")
    ] = None,
    text: TextColumn = "text",
    neighbours: Annotated[int, Option(min=0, help="Number of nearest examples to show.")] = 3,
    several: Annotated[bool, Option(help="Look for several intents in a text.")] = False,
    out: Annotated[
        Path | None,
        out_file(
            ".csv", ".jsonl", help="Write one row per text, with the columns of --file, to a .csv or .jsonl file."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Predict the intents of texts with reasons, or abstain.

    Example: `turnwise intents predict intents "where is my parcel"`

    Example: `turnwise intents predict intents --file messages.csv --out predictions.csv`
    """
    if bool(texts) == (file is not None):
        raise typer.BadParameter("give either texts or a file", param_hint="TEXTS / --file")
    from turnwise.assist.intents.examples import read_texts
    from turnwise.assist.intents.prediction_files import read_table, write_predictions
    from turnwise.assist.intents.storage import read_classifier

    if out is not None:
        _check_not_input(out, file)
        rows = [{text: value} for value in texts or ()] if file is None else read_table(file, text)
        classifier = read_classifier(folder)
        with progress_bar() as progress:
            counts = write_predictions(classifier, rows, out, text=text, several=several, progress=progress)
        show({"file": str(out), **asdict(counts)}, _predictions_table(out, counts), as_json=as_json)
        return
    inputs = list(texts or ()) if file is None else read_texts(file, text)
    decisions = read_classifier(folder).decide(inputs, neighbours=neighbours, several=several)
    show([asdict(decision) for decision in decisions], *map(_decision_block, decisions), as_json=as_json)


def _check_not_input(out: Path, file: Path | None) -> None:
    if file is not None and out.resolve() == file.resolve():
        raise typer.BadParameter(f"{out} is the input: choose another file", param_hint="--out")


def _predictions_table(out: Path, counts: "PredictionCounts") -> Block:
    rows = [("rows", f"{counts.rows:,}"), ("accepted", f"{counts.accepted:,}"), ("rejected", f"{counts.rejected:,}")]
    if counts.blank:
        rows.append(("without a text", f"{counts.blank:,}"))
    most = list(counts.intents.items())[:_MAX_DIAGNOSTICS]
    rows.append(("most frequent", ", ".join(f"{intent} {count:,}" for intent, count in most) or "none"))
    return facts(out, rows)


def _decision_block(decision: "Decision") -> Block:
    return lines(
        (excerpt(decision.text), "bold"),
        (f"  {', '.join(decision.intents) or 'none of the intents'}", "yellow" if decision.abstained else "green"),
        (f"  {decision.reason}", "dim"),
        *((f"  {near.similarity:.2f}  {near.intent}: {excerpt(near.text)}", "dim") for near in decision.nearest[1:]),
    )


@intents_app.command("calibrate", cls=_InFolder)
def calibrate_command(
    folder: Folder,
    texts: LabelledTexts,
    false_rejection: FalseRejection = None,
    text: TextColumn = "text",
    intent: IntentColumn = "intent",
    as_json: AsJson = False,
) -> None:
    """Calibrate a classifier on held-out texts.

    The calibration stays in force when examples are added.

    Example: `turnwise intents calibrate intents validation.csv --false-rejection 0.02`
    """
    from turnwise.assist.intents.examples import read_labelled
    from turnwise.assist.intents.storage import IntentFolder
    from turnwise.core.errors import IntentError

    if false_rejection == 0:
        raise IntentError("false_rejection must be above 0: a classifier that never abstains needs no calibration")
    pairs = read_labelled(texts, text, intent)
    with IntentFolder.open(folder) as opened:
        opened.classifier.calibrate(
            [text for text, _ in pairs], [intent for _, intent in pairs], false_rejection=false_rejection
        )
        opened.compact()
        _show_classifier(folder, opened.classifier, as_json)


@intents_app.command("test", cls=_InFolder)
def test_command(
    folder: Folder,
    texts: LabelledTexts,
    out: Annotated[
        Path | None, out_file(".html", ".htm", ".json", help="Write the result to this HTML or JSON file.")
    ] = None,
    exclude_examples: Annotated[
        bool, Option("--exclude-examples", help="Leave out texts that are also examples of the classifier.")
    ] = False,
    unknown_out_of_scope: Annotated[
        bool, Option("--unknown-out-of-scope", help="Count texts of intents without examples as out of scope.")
    ] = False,
    text: TextColumn = "text",
    intent: IntentColumn = "intent",
    as_json: AsJson = False,
) -> None:
    """Test a classifier on labelled texts.

    It reports accuracy, abstention, confusions and calibration, with 95% intervals. Rows without an intent are
    skipped; rows with the intent 'out_of_scope' should be rejected. Use texts that the classifier was not fitted on.

    Example: `turnwise intents test intents held-out.csv --out test.html`
    """
    from turnwise.assist.intents.examples import read_labelled
    from turnwise.assist.intents.storage import read_classifier
    from turnwise.assist.intents.testing import run_test, write_test

    pairs = read_labelled(texts, text, intent)
    classifier = read_classifier(folder)
    with progress_bar() as progress:
        result = run_test(
            classifier,
            [text for text, _ in pairs],
            [intent for _, intent in pairs],
            exclude_examples=exclude_examples,
            unknown_out_of_scope=unknown_out_of_scope,
            progress=progress,
        )
    if result.in_examples and not exclude_examples:
        message(
            f"warning: {result.in_examples:,} of {result.texts:,} texts are also examples of the classifier, so the"
            " results are too good; leave them out with --exclude-examples"
        )
    if out is not None:
        write_test(result, out)
    show(result.to_json(), *_test_blocks(texts, result, out), as_json=as_json)


def _test_blocks(source: Path, result: "ClassifierTest", out: Path | None) -> list[Block]:
    requested = result.requested_false_rejection
    target = "never abstains" if requested is None else f"{requested:.1%} requested"
    rows = [("texts", f"{result.in_scope:,} in scope, {result.out_of_scope:,} out of scope")]
    if result.in_examples and result.examples_excluded:
        rows.append(("left out", f"{result.in_examples:,} texts that are also examples of the classifier"))
    if result.unknown_intents:
        names = ", ".join(f"{name} ({count:,})" for name, count in result.unknown_intents.items())
        rows.append(("no examples of", f"{names}; counted as out of scope"))
    rows += [
        ("correct", f"{_fraction(result.correct)} of all texts: the right intent, or rejected if out of scope"),
        ("accuracy", f"{_fraction(result.accuracy)} of in-scope texts, ignoring abstention"),
        ("", f"{_fraction(result.accepted_accuracy)} of the accepted ones"),
        ("coverage", f"{_fraction(result.coverage)} of all texts are accepted"),
        ("false rejection", f"{_fraction(result.false_rejection)} of in-scope texts; {target}"),
    ]
    low = result.false_rejection.low
    if requested is not None and low is not None and low > requested:
        rows.append(("", "higher than requested: run `turnwise intents calibrate` on other labelled texts"))
    if result.out_of_scope:
        rows += [
            ("out of scope", f"{_fraction(result.out_of_scope_recall)} of out-of-scope texts are rejected (recall)"),
            ("", f"{_fraction(result.out_of_scope_precision)} of rejected texts are out of scope (precision)"),
        ]
    rows.append(("macro F1", f"{result.macro_f1:.1%}"))
    if result.in_scope:
        rows.append(("calibration", f"expected calibration error {result.reliability.ece:.3f}"))
    rows += [
        ("confused", f"{each.intent} predicted as {each.predicted}: {each.count:,}, such as '{each.texts[0]}'")
        for each in result.confusions[:_MAX_DIAGNOSTICS]
    ]
    if out is not None:
        rows.append(("written", str(out)))
    intents = [
        (each.intent, f"{each.texts:,}", *map(_percent, (each.precision, each.recall, each.f1)))
        for each in sorted(result.intents, key=lambda each: 1.0 if each.f1 is None else each.f1)[:_MAX_INTENTS]
    ]
    reliability = [
        (f"{confidence:.1%}", f"{accuracy:.1%}", f"{count:,}")
        for confidence, accuracy, count in zip(
            result.reliability.confidence, result.reliability.accuracy, result.reliability.count, strict=True
        )
    ]
    shown = (
        "intents" if len(result.intents) <= _MAX_INTENTS else f"intents with the lowest F1, of {len(result.intents):,}"
    )
    return [
        facts(source, rows),
        columns((shown, "texts", "precision", "recall", "F1"), intents),
        columns(("confidence", "accuracy", "texts"), reliability),
    ]


def _percent(fraction: float | None) -> str:
    return "–" if fraction is None else f"{fraction:.1%}"


def _fraction(estimate: "Estimate") -> str:
    if estimate.value is None:
        return "–"
    return f"{estimate.value:.1%} [{_percent(estimate.low)}, {_percent(estimate.high)}]"


@examples_app.command("add", cls=_InFolder)
def add_command(
    folder: Folder,
    intent: Annotated[str, Argument(help="Intent, possibly new; 'out_of_scope' for texts to reject.")],
    texts: Annotated[list[str], Argument(help="Example texts.")],
    as_json: AsJson = False,
) -> None:
    """Add examples of an intent, without training.

    Example: `turnwise intents examples add intents refund "I want my money back" "please refund me"`
    """
    from turnwise.assist.intents.storage import IntentFolder

    with IntentFolder.open(folder) as opened:
        count = opened.add([(text, intent) for text in texts])
        intents = len(opened.classifier.classes_)
    summary = f"{count:,} new examples of {intent}; {intents:,} intents"
    show({"added": count, "intents": intents}, summary, as_json=as_json)


@examples_app.command("remove", cls=_InFolder)
def remove_command(
    folder: Folder,
    intent: Annotated[str, Argument(help="Intent.")],
    texts: Annotated[
        list[str] | None, Argument(help="Examples to remove; by default all of them, and thus the intent.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Remove examples of an intent, or the whole intent.

    Example: `turnwise intents examples remove intents refund`
    """
    from turnwise.assist.intents.storage import IntentFolder
    from turnwise.core.errors import IntentError

    with IntentFolder.open(folder) as opened:
        if not opened.classifier.examples_of(intent):
            raise IntentError(f"there are no examples of {intent!r}: {folder}/intents.json lists the intents")
        count = opened.remove([(text, intent) for text in texts]) if texts else opened.remove(intent=intent)
        intents = len(opened.classifier.classes_)
    summary = f"{count:,} examples of {intent} removed; {intents:,} intents"
    show({"removed": count, "intents": intents}, summary, as_json=as_json)


@examples_app.command("export", cls=_InFolder)
def export_command(
    folder: Folder,
    out: Annotated[
        Path,
        out_file(".yml", ".yaml", ".csv", ".jsonl", help="File to write: Rasa's nlu.yml, or a .csv or .jsonl file."),
    ],
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Write the examples of a classifier to a file.

    The file is for Rasa, or has the columns text and intent.

    Example: `turnwise intents examples export intents --out nlu.yml`
    """
    from turnwise.assist.intents.storage import read_examples
    from turnwise.corpus.exporting import LABELLED_FORMATS, export_dialogues, labelled_dialogues

    examples = labelled_dialogues(read_examples(folder))
    counts = export_dialogues(examples, out, LABELLED_FORMATS[out.suffix], overwrite=force)
    show(counts.as_dict(), export_report(out, counts), as_json=as_json)


@intents_app.command("report")
def report_command(
    examples: Annotated[
        Path, Argument(help="Texts with intents: .csv, .tsv, .jsonl, .parquet or a store; or a classifier folder.")
    ],
    out: Annotated[Path | None, out_file(".html", ".htm", help="Write the report to this HTML file.")] = None,
    folds: Annotated[int, Option(min=2, help="Cross-validation folds.")] = 5,
    model: Annotated[
        str | None,
        Option(help=f"Encoder: minilm, a model folder or a Hugging Face id; {DEFAULT_ENCODER} by default."),
    ] = None,
    head: Annotated[HeadChoice | None, Option(help="Classification head, as in `intents fit`.")] = None,
    neighbours: Annotated[
        int | None, Option(min=1, help="Nearest examples of an intent to use, as in `intents fit`.")
    ] = None,
    false_rejection: FalseRejection = None,
    per_intent: Annotated[bool | None, Option(help="Use one threshold per intent.")] = None,
    tune: Annotated[
        int | None, Option(min=1, help="Fine-tune the encoder in every fold, for this many epochs.")
    ] = None,
    seed: Seed = 0,
    text: TextColumn = "text",
    intent: IntentColumn = "intent",
    as_json: AsJson = False,
) -> None:
    """Report likely wrong labels and confused intents.

    Uses cross-validation, and also reports overlapping intents.

    Each example is classified by a classifier that has not seen it. For a classifier folder its own examples and
    settings are used.

    Example: `turnwise intents report examples.csv --out report.html`

    Example: `turnwise intents report intents --out report.html`
    """
    from turnwise.assist.intents.examples import read_labelled
    from turnwise.assist.intents.report import make_report, write_report
    from turnwise.assist.intents.storage import is_classifier
    from turnwise.core.dialogue import OUT_OF_SCOPE

    options: dict[str, Any] = {
        "model": model,
        "head": head,
        "neighbours": neighbours,
        "false_rejection": false_rejection,
        "per_intent": per_intent,
        "tune": tune,
    }
    options = {name: value for name, value in options.items() if value is not None}
    if is_classifier(examples):
        pairs, classifier = _open_for_report(examples, options)
    else:
        pairs, classifier = read_labelled(examples, text, intent), _make_classifier(**options)
    in_scope = [pair for pair in pairs if pair[1] != OUT_OF_SCOPE]
    with progress_bar() as progress:
        result = make_report(
            [text for text, _ in in_scope],
            [intent for _, intent in in_scope],
            classifier,
            out_of_scope=[text for text, intent in pairs if intent == OUT_OF_SCOPE],
            folds=folds,
            seed=seed,
            progress=progress,
        )
    if out is not None:
        write_report(result, out)
    show(result.to_json(), _report_table(examples, result, out), as_json=as_json)


def _open_for_report(folder: Path, options: dict[str, Any]) -> "tuple[list[IntentPair], IntentClassifier]":
    """Return a classifier and its examples, including those in its journal."""
    from turnwise.assist.intents.storage import IntentFolder
    from turnwise.core.errors import IntentError

    if options:
        name = f"--{next(iter(options)).replace('_', '-')}"
        raise typer.BadParameter(f"{folder} is a classifier with its own settings: omit {name}", param_hint=name)
    with IntentFolder.open(folder) as opened:
        classifier = opened.classifier
        if classifier.tuning is not None:
            raise IntentError(
                f"the encoder in {folder} was fine-tuned on its examples, so a report on them would be too optimistic:"
                " report on the file of examples, with --tune"
            )
        return list(classifier.model_.examples.pairs), classifier


def _make_classifier(
    model: str = DEFAULT_ENCODER, false_rejection: float | None = 0.05, tune: int | None = None, **options: Any
) -> "IntentClassifier":
    if tune is not None:
        from turnwise.assist.intents.tuning import TuningSettings

        options["tuning"] = TuningSettings(epochs=tune)
    return turnwise.IntentClassifier(model, false_rejection=false_rejection or None, **options)


def _show_classifier(folder: Path, classifier: "IntentClassifier", as_json: bool) -> None:
    calibration, examples = classifier.calibration_, classifier.model_.examples
    selection = classifier.head_selection_
    data = {
        "folder": str(folder),
        "head": classifier.head_,
        "head_selection": None if selection is None else selection.to_json(),
        "intents": len(examples.classes),
        "examples": len(examples.labels),
        "out_of_scope": len(examples.out_of_scope_vectors),
        "calibration": calibration.to_json(),
    }
    rows = [("fitted on", f"{data['examples']:,} examples of {data['intents']:,} intents")]
    if data["out_of_scope"]:
        rows.append(("out of scope", f"{data['out_of_scope']:,} examples"))
    rows.append(("head", classifier.head_ if selection is None else f"{classifier.head_}, {selection.reason}"))
    if calibration.threshold is None:
        rows.append(("abstains", "never"))
    else:
        average = " on average, one per intent" if calibration.offsets else ""
        below = f"below a score of {calibration.threshold:.3f}{average}"
        rows.append(("abstains", f"{below}: {calibration.false_rejection:.1%} of in-scope texts"))
    if calibration.out_of_scope_recall is not None:
        rows.append(("rejects", f"{calibration.out_of_scope_recall:.1%} of out-of-scope texts"))
    if calibration.texts:
        source = "held-out texts" if calibration.held_out else "examples (leave-one-out)"
        error = f"expected calibration error {calibration.reliability.ece:.3f}"
        rows.append(("calibrated on", f"{calibration.texts:,} {source}; {error}"))
    show(data, facts(folder, rows), as_json=as_json)


def _report_table(source: Path, result: "IntentReport", out: Path | None) -> Block:
    requested = result.settings["false_rejection"]
    rejected = "never abstains"
    if requested is not None:
        rejected = f"{result.false_rejection:.1%} of in-scope texts, {requested:.1%} requested"
    classified = f"{result.evaluated:,} classified in {result.folds} folds"
    rows = [
        ("examples", f"{result.examples:,} of {len(result.intents):,} intents, {classified}"),
        ("accuracy", f"{result.accuracy:.1%}; {result.answered_accuracy:.1%} of those not rejected"),
        ("rejected", rejected),
        ("calibration", f"expected calibration error {result.reliability.ece:.3f}"),
    ]
    if result.out_of_scope_recall is not None:
        rows.append(("out of scope", f"{result.out_of_scope_recall:.1%} of {result.out_of_scope:,} rejected"))
    if result.not_evaluated:
        rows.append(("not classified", f"{', '.join(result.not_evaluated)}: a single example"))
    rows += [
        ("mislabelled?", f"'{excerpt(each.text)}': {each.intent}, looks like {each.proposed} ({each.probability:.0%})")
        for each in result.label_issues[:_MAX_DIAGNOSTICS]
    ]
    if result.label_issue_count > _MAX_DIAGNOSTICS:
        rows.append(("", f"… {result.label_issue_count:,} in total"))
    rows += [
        ("confused", f"{each.first} and {each.second}: {each.first_as_second + each.second_as_first:,} times")
        for each in result.confusions[:_MAX_DIAGNOSTICS]
    ]
    rows += [
        ("overlap", f"{each.first} and {each.second}: {each.overlap:.2f}")
        for each in result.overlaps[:_MAX_DIAGNOSTICS]
    ]
    if out is not None:
        rows.append(("written", str(out)))
    return facts(source, rows)
