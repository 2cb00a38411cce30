"""`turnwise intents`: fit, apply, calibrate and diagnose intent classifiers."""

from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

import turnwise
from turnwise.cli import options
from turnwise.cli.corpus import export_report
from turnwise.cli.help import command_group
from turnwise.cli.intent_output import add_to_project, decision_block, predictions_table, show_classifier, show_result
from turnwise.cli.languages import check_language
from turnwise.cli.output import facts, message, progress_bar, show
from turnwise.core.dialogue import OUT_OF_SCOPE
from turnwise.core.errors import IntentError
from turnwise.core.project import Project

if TYPE_CHECKING:
    from turnwise.assist.intents.classifier import IntentClassifier
    from turnwise.assist.intents.log_texts import Log

intents_app = command_group("Classify intents from a few examples each, with abstention.")
examples_app = command_group("Add, remove and export examples of a classifier.")
intents_app.add_typer(examples_app, name="examples")

#: Texts and the intent of each.
Labelled = tuple[tuple[str, ...], tuple[str, ...]]

#: Commands on a classifier, which may be left out inside a project.
_InFolder = options.project_command("intents")

Folder = Annotated[Path, Argument(file_okay=False, help="Classifier folder, written by `turnwise intents fit`.")]
LabelledTexts = Annotated[
    Path, Argument(help="Texts with intents: a .csv, .tsv, .xlsx, .jsonl or .parquet file, or a store.")
]
TextColumn = Annotated[str, Option("--text", help="Text column.")]
IntentColumn = Annotated[str, Option("--intent", help="Intent column.")]
FalseRejection = Annotated[
    float | None,
    Option(min=0, max=0.99, help="Fraction of in-scope texts that may be rejected; 0: never abstain; 0.05 by default."),
]
Neighbours = Annotated[
    int | None, Option(min=1, help="Nearest examples of an intent to use, 5 by default, for the head neighbours.")
]
PerIntent = Annotated[bool | None, Option(help="Use one threshold per intent.")]
Tune = Annotated[int | None, Option(min=1, help="Fine-tune the encoder on the examples first, for this many epochs.")]
LogTexts = Annotated[
    Path | None, Option("--log", exists=True, help="Unlabelled texts: a file, or a store; by default a project's own.")
]
NoLog = Annotated[bool, Option("--no-log", help="Use no log.")]
ResultFile = Annotated[
    Path | None, options.out_file(".html", ".htm", ".json", help="Write the result to this HTML or JSON file.")
]


@intents_app.command("fit")
def fit_command(
    examples: Annotated[
        Path,
        Argument(help="Intents with examples, or names: a .csv, .tsv, .xlsx, .jsonl or .parquet file, or a store."),
    ],
    out: Annotated[Path | None, Option(file_okay=False, help="Folder to write; in a project, its intents.")] = None,
    log: LogTexts = None,
    no_log: NoLog = False,
    names: Annotated[bool, Option(help="Use the names of intents.")] = True,
    model: options.OptionalModel = None,
    head: options.Head = None,
    neighbours: Neighbours = None,
    false_rejection: FalseRejection = None,
    per_intent: PerIntent = None,
    tune: Tune = None,
    text: TextColumn = "text",
    intent: IntentColumn = "intent",
    as_json: options.AsJson = False,
) -> None:
    """Fit a classifier on a few examples, names of intents and a log.

    Rows without an intent are skipped; rows with the intent 'out_of_scope' are examples of texts to reject. A row
    without a text names an intent, and a column 'description' says what it is about.

    Example: `turnwise intents fit examples.csv --log store --out intents`
    """
    from turnwise.assist.intents.classifier_files import is_classifier
    from turnwise.assist.intents.examples import read_texts, read_with_names
    from turnwise.assist.intents.storage import replace_classifier

    project = None if out is not None else options.require_project("--out")
    pairs, descriptions = read_with_names(examples, text, intent)
    log = _choose_log(log, no_log, None if tune else project)
    if out is not None and out.is_dir() and any(out.iterdir()) and not is_classifier(out):
        raise IntentError(f"{out} exists and is not an intent classifier: choose another folder")
    arguments = {"head": head, "neighbours": neighbours, "per_intent": per_intent, "use_names": names}
    classifier = _make_classifier(model, false_rejection, tune, **arguments)
    texts = log if log is None or log.is_dir() else read_texts(log, text)
    check_language([example for example, _ in pairs] or texts, given=model)
    with progress_bar() as progress:
        progress("fitting", 0)
        classifier.fit(
            [example for example, _ in pairs],
            [name for _, name in pairs],
            log=texts,
            descriptions=descriptions,
            progress=progress,
        )
    if project is not None:
        out, classifier = add_to_project(project, classifier)
    else:
        assert out is not None
        replace_classifier(classifier, out)
    show_classifier(out, classifier, as_json)


@intents_app.command("history")
def history_command(as_json: options.AsJson = False) -> None:
    """List the classifiers of a project, oldest first.

    Example: `turnwise intents history`
    """
    from turnwise.assist.intents.storage import classifier_versions, read_examples

    project = options.require_project("the current folder")
    data = []
    for number in classifier_versions(project.classifiers):
        examples = read_examples(replace(project, classifier=number).part("intents"))
        intents = len({intent for _, intent in examples} - {OUT_OF_SCOPE})
        in_use = number == project.classifier
        data.append({"number": number, "intents": intents, "examples": len(examples), "in_use": in_use})
    rows = [
        (
            str(each["number"]),
            f"{each['intents']:,} intents, {each['examples']:,} examples" + "; in use" * each["in_use"],
        )
        for each in data
    ]
    show(data, facts(project.classifiers, rows), as_json=as_json)


@intents_app.command("use")
def use_command(number: Annotated[int, Argument(help="Number of a classifier, as shown by `history`.")]) -> None:
    """Use another classifier of a project.

    A running service follows within seconds.

    Example: `turnwise intents use 1`
    """
    from turnwise.assist.intents.storage import classifier_versions

    project = options.require_project("the current folder")
    known = classifier_versions(project.classifiers)
    if number not in known:
        numbers = ", ".join(map(str, known)) or "none yet"
        raise IntentError(f"the project has no classifier {number}: `turnwise intents history` lists them ({numbers})")
    project = project.update(classifier=number)
    show(None, facts(project.part("intents"), [("in use", f"classifier {number}")]))


@intents_app.command("predict", cls=_InFolder)
def predict_command(
    folder: Folder,
    texts: Annotated[list[str] | None, Argument(help="Texts to classify.")] = None,
    file: Annotated[
        Path | None, Option(dir_okay=False, help="A .txt, .csv, .tsv, .xlsx, .jsonl or .parquet file.")
    ] = None,
    text: TextColumn = "text",
    context: Annotated[
        list[str] | None, Option(help="Turn before the texts; repeat it, oldest first. In files: the column 'context'.")
    ] = None,
    neighbours: Annotated[int, Option(min=0, help="Number of nearest examples to show.")] = 3,
    several: Annotated[bool, Option(help="Look for several intents in a text.")] = False,
    out: Annotated[Path | None, options.out_file(".csv", ".jsonl", help="Write one row per text to this file.")] = None,
    as_json: options.AsJson = False,
) -> None:
    """Predict the intents of texts with reasons, or abstain.

    Example: `turnwise intents predict intents --file messages.csv --out predictions.csv`
    """
    if bool(texts) == (file is not None) or (context and file is not None):
        raise typer.BadParameter("give either texts or a file with a column 'context'", param_hint="TEXTS / --file")
    from turnwise.assist.intents.examples import read_texts
    from turnwise.assist.intents.prediction_files import read_table, write_predictions
    from turnwise.assist.intents.storage import read_classifier

    if out is not None:
        if file is not None and out.resolve() == file.resolve():
            raise typer.BadParameter(f"{out} is the input: choose another file", param_hint="--out")
        given = [{text: value, "context": context} if context else {text: value} for value in texts or ()]
        rows = given if file is None else read_table(file, text)
        classifier = read_classifier(folder)
        with progress_bar() as progress:
            counts = write_predictions(classifier, rows, out, text=text, several=several, progress=progress)
        show({"file": str(out), **asdict(counts)}, predictions_table(out, counts), as_json=as_json)
        return
    inputs = [[*(context or ()), value] for value in texts or ()] if file is None else read_texts(file, text)
    decisions = read_classifier(folder).decide(inputs, neighbours=neighbours, several=several)
    show([asdict(decision) for decision in decisions], *map(decision_block, decisions), as_json=as_json)


@intents_app.command("calibrate", cls=_InFolder)
def calibrate_command(
    folder: Folder,
    texts: LabelledTexts,
    false_rejection: FalseRejection = None,
    text: TextColumn = "text",
    intent: IntentColumn = "intent",
    as_json: options.AsJson = False,
) -> None:
    """Calibrate a classifier on held-out texts.

    The calibration is kept when examples are added.

    Example: `turnwise intents calibrate intents validation.csv --false-rejection 0.02`
    """
    from turnwise.assist.intents.storage import IntentFolder

    if false_rejection == 0:
        raise IntentError("false_rejection must be above 0: a classifier that never abstains needs no calibration")
    labelled = _read(texts, text, intent)
    with IntentFolder.open(folder) as opened:
        opened.classifier.calibrate(*labelled, false_rejection=false_rejection)
        opened.compact()
        show_classifier(folder, opened.classifier, as_json)


@intents_app.command("test", cls=_InFolder)
def test_command(
    folder: Folder,
    texts: LabelledTexts,
    out: ResultFile = None,
    exclude_examples: Annotated[bool, Option("--exclude-examples", help="Leave out texts that are examples.")] = False,
    unknown_out_of_scope: Annotated[
        bool, Option("--unknown-out-of-scope", help="Count texts of intents without examples as out of scope.")
    ] = False,
    text: TextColumn = "text",
    intent: IntentColumn = "intent",
    as_json: options.AsJson = False,
) -> None:
    """Test a classifier on labelled texts.

    Reports accuracy, abstention, confusions and calibration, with 95% intervals. Rows with the intent 'out_of_scope'
    should be rejected. Use texts that the classifier was not fitted on.

    Example: `turnwise intents test intents held-out.csv --out test.html`
    """
    from turnwise.assist.intents.storage import read_classifier
    from turnwise.assist.intents.testing import run_test

    labelled = _read(texts, text, intent)
    classifier = read_classifier(folder)
    arguments: dict[str, Any] = {"exclude_examples": exclude_examples, "unknown_out_of_scope": unknown_out_of_scope}
    with progress_bar() as progress:
        result = run_test(classifier, *labelled, **arguments, progress=progress)
    if result.in_examples and not exclude_examples:
        message(
            f"warning: {result.in_examples:,} of {result.texts:,} texts are also examples of the classifier, so the"
            " results are too good; leave them out with --exclude-examples"
        )
    show_result(texts, result, out, as_json)


@examples_app.command("add", cls=_InFolder)
def add_command(
    folder: Folder,
    intent: Annotated[str | None, Argument(help="Intent, possibly new; 'out_of_scope' for texts to reject.")] = None,
    texts: Annotated[list[str] | None, Argument(help="Example texts.")] = None,
    file: Annotated[
        Path | None,
        Option(dir_okay=False, help="Texts with intents instead, such as those of `report --out FILE.csv`."),
    ] = None,
    as_json: options.AsJson = False,
) -> None:
    """Add examples of an intent, or those in a file, without training.

    Example: `turnwise intents examples add intents refund "I want my money back" "please refund me"`
    """
    from turnwise.assist.intents.examples import read_labelled
    from turnwise.assist.intents.storage import IntentFolder

    if bool(intent and texts) == (file is not None) or bool(intent) != bool(texts):
        raise typer.BadParameter("give either an intent with texts or a file", param_hint="INTENT TEXTS / --file")
    pairs = [(text, intent or "") for text in texts or ()] if file is None else read_labelled(file)
    with IntentFolder.open(folder) as opened:
        count = opened.add(pairs)
        intents = len(opened.classifier.classes_)
    summary = f"{count:,} new examples{f' of {intent}' if intent else ''}; {intents:,} intents"
    show({"added": count, "intents": intents}, summary, as_json=as_json)


@examples_app.command("remove", cls=_InFolder)
def remove_command(
    folder: Folder,
    intent: Annotated[str, Argument(help="Intent.")],
    texts: Annotated[list[str] | None, Argument(help="Examples; by default all, and thus the intent.")] = None,
    as_json: options.AsJson = False,
) -> None:
    """Remove examples of an intent, or the whole intent.

    Example: `turnwise intents examples remove intents refund`
    """
    from turnwise.assist.intents.storage import IntentFolder

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
    out: Annotated[Path, options.out_file(".yml", ".yaml", ".csv", ".jsonl", help="nlu.yml for Rasa, .csv or .jsonl.")],
    force: options.Force = False,
    as_json: options.AsJson = False,
) -> None:
    """Write the examples of a classifier to a file.

    Example: `turnwise intents examples export intents --out nlu.yml`
    """
    from turnwise.assist.intents.context import has_context, last_turn
    from turnwise.assist.intents.storage import read_examples
    from turnwise.corpus.exporting import LABELLED_FORMATS, export_dialogues, labelled_dialogues

    pairs = read_examples(folder)
    if has_context(pairs):
        message("the turns before the examples are left out: these formats have texts alone")
    examples = labelled_dialogues([(last_turn(text), intent) for text, intent in pairs])
    counts = export_dialogues(examples, out, LABELLED_FORMATS[out.suffix], overwrite=force)
    show(counts.as_dict(), export_report(out, counts), as_json=as_json)


@intents_app.command("report")
def report_command(
    examples: Annotated[
        Path | None, Argument(help="Texts with intents, as for `fit`; or a classifier folder. In a project, its own.")
    ] = None,
    out: Annotated[
        Path | None,
        options.out_file(
            ".html", ".htm", ".json", ".csv", help="Write the report to this HTML or JSON file; .csv: texts of the log."
        ),
    ] = None,
    log: LogTexts = None,
    no_log: NoLog = False,
    folds: Annotated[int, Option(min=2, help="Cross-validation folds.")] = 5,
    model: options.OptionalModel = None,
    head: options.Head = None,
    neighbours: Neighbours = None,
    false_rejection: FalseRejection = None,
    per_intent: PerIntent = None,
    tune: Tune = None,
    seed: options.Seed = 0,
    text: TextColumn = "text",
    intent: IntentColumn = "intent",
    as_json: options.AsJson = False,
) -> None:
    """Find likely wrong labels, and confused or overlapping intents.

    Every example is classified by cross-validation. A report on a classifier folder uses its examples and settings.
    With a log, the report lists the texts of the log that most probably have each intent, to be confirmed as examples.

    Example: `turnwise intents report intents --log store --out report.html`
    """
    from turnwise.assist.intents.classifier_files import is_classifier
    from turnwise.assist.intents.examples import read_texts, read_with_names
    from turnwise.assist.intents.testing import classify_log, cross_validate, empty_result

    examples = examples or options.project_part("intents", "EXAMPLES")
    log = _choose_log(log, no_log, None if tune else Project.find())
    given = {"model": model, "false_rejection": false_rejection, "tune": tune}
    given |= {"head": head, "neighbours": neighbours, "per_intent": per_intent}
    texts = log if log is None or log.is_dir() else read_texts(log, text)
    if is_classifier(examples):
        fitted = _open_for_report(examples, [name for name, value in given.items() if value is not None])
        pairs, descriptions = list(fitted.model_.examples.pairs), fitted.descriptions_
        learnt: Log | None = None if fitted.model_.log is None else fitted.model_.log.vectors
    else:
        fitted = _make_classifier(**given)
        pairs, descriptions = read_with_names(examples, text, intent)
        learnt = texts
    if not pairs and texts is None:
        raise IntentError(f"{examples} has names of intents, but no examples: give a log (--log), or examples")
    labelled = [example for example, _ in pairs], [name for _, name in pairs]
    with progress_bar() as progress:
        arguments: dict[str, Any] = {"folds": folds, "seed": seed, "progress": progress}
        try:
            if not pairs:
                raise IntentError("there are no examples, only names of intents")
            result = cross_validate(*labelled, fitted, log=learnt, descriptions=descriptions, **arguments)
        except IntentError as error:  # too few examples
            if texts is None:
                raise
            result = empty_result(fitted, str(error))
        if texts is not None:
            if not hasattr(fitted, "model_"):
                fitted.fit(*labelled, log=texts, descriptions=descriptions, progress=progress)
            result = replace(result, log=classify_log(fitted, texts, progress=progress))
    show_result(examples, replace(result, support=getattr(fitted, "support_selection_", None)), out, as_json)


def _choose_log(log: Path | None, no_log: bool, project: Project | None) -> Path | None:
    """Return the log that was given, or else that of a project."""
    if log is not None and no_log:
        raise typer.BadParameter("give either a log or --no-log", param_hint="--log / --no-log")
    return log if log is not None or no_log or project is None else project.part("store")


def _open_for_report(folder: Path, given: list[str]) -> "IntentClassifier":
    """Return a classifier with the changes in its journal."""
    from turnwise.assist.intents.storage import IntentFolder

    if given:
        name = f"--{given[0].replace('_', '-')}"
        raise typer.BadParameter(f"{folder} is a classifier with its own settings: omit {name}", param_hint=name)
    with IntentFolder.open(folder) as opened:
        classifier = opened.classifier
        if classifier.tuning is not None:
            raise IntentError(
                f"the encoder in {folder} was fine-tuned on its examples, so a report on them would be too optimistic:"
                " report on the file of examples, with --tune"
            )
        return classifier


def _read(path: Path, text: str, intent: str) -> Labelled:
    """Return the labelled texts of a file or a store, and their intents."""
    from turnwise.assist.intents.examples import read_labelled

    texts, intents = zip(*read_labelled(path, text, intent), strict=True)
    return texts, intents


def _make_classifier(model: Any, false_rejection: Any, tune: Any, **arguments: Any) -> "IntentClassifier":
    """Return a classifier with options that were given; None: the default."""
    arguments = {name: value for name, value in arguments.items() if value is not None}
    if false_rejection is not None:
        arguments["false_rejection"] = false_rejection or None
    if tune is not None:
        from turnwise.assist.intents.tuning import TuningSettings

        arguments["tuning"] = TuningSettings(epochs=tune)
    return turnwise.IntentClassifier(options.model_or_default(model), **arguments)
