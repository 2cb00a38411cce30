"""`turnwise intents report`: what is wrong with examples of intents, by cross-validation."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from turnwise.cli.intents import IntentColumn, Rate, TextColumn
from turnwise.cli.terminal import AsJson, bar, print_json, print_table, quiet

if TYPE_CHECKING:
    from turnwise.assist.intents.classifier import IntentClassifier
    from turnwise.assist.intents.examples import Pair
    from turnwise.assist.intents.report import Report

#: Findings of a kind that a terminal shows.
_SHOWN = 5


def report_command(
    examples: Annotated[
        Path,
        typer.Argument(
            help="Texts with their intents: .csv, .tsv, .jsonl, .parquet, a store; or a classifier's folder."
        ),
    ],
    out: Annotated[Path | None, typer.Option(dir_okay=False, help="Write the report to this HTML file.")] = None,
    folds: Annotated[int, typer.Option(min=2, help="Folds of the cross-validation.")] = 5,
    model: Annotated[
        str | None, typer.Option(help="The encoder: minilm unless named, a folder, a Hugging Face id.")
    ] = None,
    head: Annotated[str | None, typer.Option(help="What tells intents, as in `intents fit`.")] = None,
    neighbours: Annotated[
        int | None, typer.Option(min=1, help="Examples of an intent that count, as in `intents fit`.")
    ] = None,
    false_rejection: Rate = None,
    per_intent: Annotated[bool | None, typer.Option(help="A threshold for each intent.")] = None,
    tune: Annotated[int | None, typer.Option(min=1, help="Fit the encoder in every fold, for so many epochs.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of the folds.")] = 0,
    text: TextColumn = "text",
    intent: IntentColumn = "intent",
    as_json: AsJson = False,
) -> None:
    """Looks for examples likely mislabelled, intents that are taken for each other, and intents that overlap.

    Each example is judged by a classifier that has not seen it. Of a classifier's folder, its examples and settings are taken.

    Example: `turnwise intents report examples.csv --out report.html`

    Example: `turnwise intents report intents --out report.html`
    """
    # before what takes seconds to import
    if out is not None and out.suffix not in (".html", ".htm"):
        raise typer.BadParameter(f"{out} does not end in .html", param_hint="--out")
    if out is not None and not out.absolute().parent.is_dir():
        raise typer.BadParameter(f"there is no folder {out.absolute().parent}", param_hint="--out")
    asked = {"model": model, "head": head, "neighbours": neighbours, "false_rejection": false_rejection}
    asked |= {"per_intent": per_intent, "tune": tune}
    given = {name: value for name, value in asked.items() if value is not None}
    from turnwise.assist.intents.storage import is_classifier

    if is_classifier(examples):
        quiet()
        pairs, classifier = _of_folder(examples, given)
    else:
        from turnwise.assist.intents.labelled_texts import read_labelled

        pairs = read_labelled(examples, text, intent)
        quiet()
        classifier = _classifier(given)
    with bar() as progress:
        found = _report(pairs, classifier, folds, seed, progress)
    if out is not None:
        from turnwise.assist.intents.page import write_report

        write_report(found, out)
    if as_json:
        print_json(found.as_json())
    else:
        _print(examples, found, out)


def _of_folder(folder: Path, given: dict[str, Any]) -> "tuple[list[Pair], IntentClassifier]":
    """A classifier's examples, those of its journal included, and how it tells intents."""
    from turnwise.assist.intents.examples import IntentError
    from turnwise.assist.intents.folder import IntentFolder

    if given:
        name = f"--{next(iter(given)).replace('_', '-')}"
        raise typer.BadParameter(f"{folder} is a classifier, which has its own: leave {name} out", param_hint=name)
    with IntentFolder.open(folder) as opened:
        classifier = opened.classifier
        if classifier.tuning is not None:
            raise IntentError(
                f"the encoder in {folder} was tuned on its examples, and would be judged on what it has seen: report on the file of"
                " examples, with --tune"
            )
        return list(classifier.fitted_.examples.pairs), classifier


def _classifier(given: dict[str, Any]) -> "IntentClassifier":
    from turnwise.assist.intents.classifier import IntentClassifier

    settings = {"model": "minilm", **given}
    if settings.get("false_rejection") == 0:
        settings["false_rejection"] = None
    if "tune" in settings:
        from turnwise.assist.intents.tuning import Tuning

        settings["tuning"] = Tuning(epochs=settings.pop("tune"))
    return IntentClassifier(settings.pop("model"), **settings)


def _report(pairs: "list[Pair]", classifier: "IntentClassifier", folds: int, seed: int, progress: Any) -> "Report":
    from turnwise.assist.intents.decision import OUT_OF_SCOPE
    from turnwise.assist.intents.report import report

    inside = [pair for pair in pairs if pair[1] != OUT_OF_SCOPE]
    return report(
        [text for text, _ in inside],
        [intent for _, intent in inside],
        classifier,
        out_of_scope=[text for text, intent in pairs if intent == OUT_OF_SCOPE],
        folds=folds,
        seed=seed,
        progress=progress,
    )


def _print(source: Path, found: "Report", out: Path | None) -> None:
    named = found.settings["false_rejection"]
    rows = [
        (
            "examples",
            f"{found.examples:,} of {len(found.intents):,} intents, {found.judged:,} judged in {found.folds} folds",
        ),
        ("right", f"{found.accuracy:.1%}; {found.answered_right:.1%} where it answers"),
        (
            "turned away",
            "it never abstains" if named is None else f"{found.false_rejection:.1%} wrongly, {named:.1%} named",
        ),
        ("calibration", f"error of probabilities {found.reliability.ece:.3f}"),
    ]
    if found.out_of_scope_recall is not None:
        rows.append(("out of scope", f"{found.out_of_scope_recall:.1%} of {found.out_of_scope:,} found"))
    if found.alone:
        rows.append(("not judged", f"{', '.join(found.alone)}: a single example"))
    rows += [
        ("mislabelled?", f"'{each.text}': {each.intent}, looks like {each.proposed} ({each.probability:.0%})")
        for each in found.suspects[:_SHOWN]
    ]
    if found.suspected > _SHOWN:
        rows.append(("", f"… {found.suspected:,} in all"))
    rows += [
        ("confused", f"{each.first} and {each.second}: {each.first_as_second + each.second_as_first:,} times")
        for each in found.confusions[:_SHOWN]
    ]
    rows += [("overlap", f"{each.first} and {each.second}: {each.overlap:.2f}") for each in found.overlaps[:_SHOWN]]
    if out is not None:
        rows.append(("written", str(out)))
    print_table(f"[bold]{source}", rows)
