"""Output of `turnwise intents`: predictions, classifiers, and the results of tests and reports."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from turnwise.cli.output import Block, columns, excerpt, facts, lines, message, show
from turnwise.core.project import Project

if TYPE_CHECKING:
    from turnwise.assist.intents.classifier import IntentClassifier
    from turnwise.assist.intents.decision import Decision
    from turnwise.assist.intents.prediction_files import PredictionCounts
    from turnwise.assist.intents.testing import Estimate, IntentTestResult

#: Number of diagnostics of each kind that the terminal shows.
_MAX_DIAGNOSTICS = 5

#: With fewer texts, a calibration is reported as uncertain.
_MIN_CALIBRATION_TEXTS = 30

#: Number of intents that the terminal shows.
_MAX_INTENTS = 20


def add_to_project(project: Project, classifier: "IntentClassifier") -> "tuple[Path, IntentClassifier]":
    """Make a classifier the one that a project uses; return its folder, and it with the examples that it takes over."""
    from turnwise.assist.intents.storage import add_classifier, read_added, read_classifier

    folder = add_classifier(project, classifier)
    if taken := len(read_added(folder)):
        message(f"{taken:,} examples that were added to the previous classifier are added to this one as well")
    return folder, read_classifier(folder)


def predictions_table(out: Path, counts: "PredictionCounts") -> Block:
    """Return how many rows of a file were classified as what."""
    rows = [("rows", f"{counts.rows:,}"), ("accepted", f"{counts.accepted:,}"), ("rejected", f"{counts.rejected:,}")]
    if counts.blank:
        rows.append(("without a text", f"{counts.blank:,}"))
    most = list(counts.intents.items())[:_MAX_DIAGNOSTICS]
    rows.append(("most frequent", ", ".join(f"{intent} {count:,}" for intent, count in most) or "none"))
    return facts(out, rows)


def decision_block(decision: "Decision") -> Block:
    """Return a decision with its reason and further similar examples."""
    return lines(
        (excerpt(decision.text), "bold"),
        (f"  {', '.join(decision.intents) or 'none of the intents'}", "yellow" if decision.abstained else "green"),
        (f"  {decision.reason}", "dim"),
        *((f"  {near.similarity:.2f}  {near.intent}: {excerpt(near.text)}", "dim") for near in decision.nearest[1:]),
    )


def show_classifier(folder: Path, classifier: "IntentClassifier", as_json: bool) -> None:
    """Print what a classifier was fitted and calibrated on, and warn of likely mistakes."""
    from turnwise.assist.intents.findings import find_mistyped_intents

    calibration, examples = classifier.calibration_, classifier.model_.examples
    selection, support = classifier.head_selection_, classifier.support_selection_
    context = classifier.context_selection_
    data = {
        "folder": str(folder),
        "head": classifier.head_,
        "head_selection": None if selection is None else asdict(selection),
        "support": None if support is None else asdict(support),
        "context": None if context is None else asdict(context),
        "intents": len(examples.classes),
        "examples": len(examples.labels),
        "out_of_scope": len(examples.out_of_scope_vectors),
        "calibration": asdict(calibration),
    }
    rows = [("fitted on", f"{data['examples']:,} examples of {data['intents']:,} intents")]
    if data["out_of_scope"]:
        rows.append(("out of scope", f"{data['out_of_scope']:,} examples"))
    if context is not None:
        rows.append(("context", f"{'used' if context.used else 'not used'}, {context.reason}"))
    if support is not None:
        rows.append(("also on", support.describe()))
    rows.append(("head", classifier.head_ if selection is None else f"{classifier.head_}, {selection.reason}"))
    if calibration.threshold is None:
        rows.append(("abstains", "never"))
    else:
        average = " on average, one per intent" if calibration.offsets else ""
        below = f"below a score of {calibration.threshold:.3f}{average}"
        rows.append(("abstains", f"{below}: {calibration.false_rejection:.1%} of in-scope texts"))
    if calibration.out_of_scope_recall is not None:
        rows.append(("rejects", f"{calibration.out_of_scope_recall:.1%} of out-of-scope texts"))
    uses_log = support is not None and bool(support.log_texts) and not calibration.held_out
    if calibration.texts or uses_log:
        source = "held-out texts" if calibration.held_out else "examples (leave-one-out)"
        value = f"{calibration.texts:,} {source}{' and the log' * uses_log}"
        if calibration.reliability.ece is not None:
            value += f"; expected calibration error {calibration.reliability.ece:.3f}"
        rows.append(("calibrated on", value))
    show(data, facts(folder, rows), as_json=as_json)
    for name, other in find_mistyped_intents(examples.pairs):
        message(f"warning: {name} has a single example, and its name is close to {other}: is it mistyped?")
    if calibration.threshold is not None and calibration.texts < _MIN_CALIBRATION_TEXTS and not uses_log:
        message(
            f"warning: the threshold was calibrated on only {calibration.texts:,} texts, so more or fewer than"
            f" {calibration.false_rejection:.1%} may be rejected: run `turnwise intents calibrate` on"
            f" {_MIN_CALIBRATION_TEXTS} or more other texts"
        )


def show_result(source: Path, result: "IntentTestResult", out: Path | None, as_json: bool) -> None:
    """Write the result of a test or a report to a file, if one is given, and print it."""
    from turnwise.assist.intents.testing import write_result

    rows = [] if result.untested else [*_metric_rows(result), *_finding_rows(result)]
    rows += [("not tested", result.untested)] * bool(result.untested)
    if result.support is not None:
        rows.append(("fitted also on", result.support.describe()))
    if out is not None:
        write_result(result, out)
        rows.append(("written", str(out)))
    intents = [
        (each.intent, f"{each.texts:,}", *map(_percent, (each.precision, each.recall, each.f1)))
        for each in sorted(result.intents, key=lambda each: 1.0 if each.f1 is None else each.f1)[:_MAX_INTENTS]
    ]
    curve = result.reliability
    reliability = [
        (f"{confidence:.1%}", f"{accuracy:.1%}", f"{count:,}")
        for confidence, accuracy, count in zip(curve.confidence, curve.accuracy, curve.count, strict=True)
    ]
    shown = (
        "intents" if len(result.intents) <= _MAX_INTENTS else f"intents with the lowest F1, of {len(result.intents):,}"
    )
    tables = []
    if not result.untested:
        tables.append(columns((shown, "texts", "precision", "recall", "F1"), intents))
        tables.append(columns(("confidence", "accuracy", "texts"), reliability))
    if (log := result.log) is not None:
        size = f"{log.texts:,} distinct texts, of {log.log_size:,} in the log"
        rows.append(("from the log", f"{size}; {log.rejected:,} are rejected"))
        best = {each.intent: f"{excerpt(each.text)} ({each.probability:.0%})" for each in reversed(log.suggestions)}
        found = [(name, f"{count:,}", best.get(name, "")) for name, count in log.intents.items()]
        tables.append(columns(("from the log", "texts", "most probable new example"), found[:_MAX_INTENTS]))
    show(asdict(result), facts(source, rows), *tables, as_json=as_json)


def _metric_rows(result: "IntentTestResult") -> list[tuple[str, str]]:
    requested = result.settings["false_rejection"]
    target = "never abstains" if requested is None else f"{requested:.1%} requested"
    folds = "" if result.folds is None else f", classified in {result.folds} folds"
    rows = [("texts", f"{result.in_scope:,} in scope, {result.out_of_scope:,} out of scope{folds}")]
    if result.in_examples and result.examples_excluded:
        rows.append(("left out", f"{result.in_examples:,} texts that are also examples of the classifier"))
    if result.unknown_intents:
        names = ", ".join(f"{name} ({count:,})" for name, count in result.unknown_intents.items())
        rows.append(("no examples of", f"{names}; counted as out of scope"))
    if result.not_evaluated:
        rows.append(("not classified", f"{', '.join(result.not_evaluated)}: a single example"))
    rows += [
        ("correct", f"{_fraction(result.correct)} of all texts: the right intent, or rejected if out of scope"),
        ("accuracy", f"{_fraction(result.accuracy)} of in-scope texts, ignoring abstention"),
        ("", f"{_fraction(result.accepted_accuracy)} of the accepted ones"),
        ("coverage", f"{_fraction(result.coverage)} of all texts are accepted"),
        ("false rejection", f"{_fraction(result.false_rejection)} of in-scope texts; {target}"),
    ]
    low = result.false_rejection.low
    if result.folds is None and requested is not None and low is not None and low > requested:
        rows.append(("", "higher than requested: run `turnwise intents calibrate` on other labelled texts"))
    if result.out_of_scope:
        rows += [
            ("out of scope", f"{_fraction(result.out_of_scope_recall)} of out-of-scope texts are rejected (recall)"),
            ("", f"{_fraction(result.out_of_scope_precision)} of rejected texts are out of scope (precision)"),
        ]
    rows.append(("macro F1", f"{result.macro_f1:.1%}"))
    if result.in_scope:
        rows.append(("calibration", f"expected calibration error {result.reliability.ece:.3f}"))
    return rows


def _finding_rows(result: "IntentTestResult") -> list[tuple[str, str]]:
    rows = [
        ("mislabelled?", f"'{excerpt(each.text)}': {each.intent}, looks like {each.proposed} ({each.probability:.0%})")
        for each in result.label_issues[:_MAX_DIAGNOSTICS]
    ]
    if result.label_issue_count > _MAX_DIAGNOSTICS:
        rows.append(("", f"… {result.label_issue_count:,} in total"))
    for confusion in result.confusions[:_MAX_DIAGNOSTICS]:
        count = f"{confusion.first_as_second + confusion.second_as_first:,} times"
        names = f"{confusion.first} and {confusion.second}"
        rows.append(("confused", f"{names}: {count}, such as '{excerpt(confusion.texts[0])}'"))
    rows += [
        ("overlap", f"{each.first} and {each.second}: {each.overlap:.2f}")
        for each in result.overlaps[:_MAX_DIAGNOSTICS]
    ]
    return rows


def _percent(fraction: float | None) -> str:
    return "–" if fraction is None else f"{fraction:.1%}"


def _fraction(estimate: "Estimate") -> str:
    if estimate.value is None:
        return "–"
    return f"{estimate.value:.1%} [{_percent(estimate.low)}, {_percent(estimate.high)}]"
