"""`turnwise corpus import`: read a log or a public corpus into a store."""

import shlex
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from textwrap import shorten
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from typer import Argument, Option

import turnwise
from turnwise.cli.languages import warn_of_language
from turnwise.cli.options import (
    AsJson,
    MaskEntities,
    MaskLists,
    MaskPatterns,
    Pseudonyms,
    ReaderOptions,
    Regions,
    StoreOut,
    model_or_default,
    parse_key_values,
)
from turnwise.cli.output import facts, message, progress_bar, show
from turnwise.core.errors import TurnwiseError
from turnwise.core.files import temporary_folder
from turnwise.corpus.hygiene.edits import HolePolicy
from turnwise.corpus.storage.rejections import NOT_READ

if TYPE_CHECKING:
    from turnwise.core.dialogue import Dialogue
    from turnwise.corpus.hygiene.masking import Masking
    from turnwise.corpus.storage.store import Store

#: In place of a reader: the one that fits.
AUTO = "auto"

#: Conversations at the start of a log that are previewed, and that the countries of phone numbers are guessed from.
SAMPLE = 1_000

#: What the report says of a step without effect.
NO_CHANGE = "no change"


def import_command(
    reader: Annotated[str, Argument(help="Reader (see `turnwise corpus list`); auto: recognise the format.")],
    path: Annotated[Path, Argument(help="File or folder to read.")],
    out: StoreOut,
    step: Annotated[
        list[str] | None,
        Option(
            metavar="STEP",
            help="Hygiene step, applied in order; repeatable: log (the recommended steps for raw logs), html, "
            "email-quotes, markdown, urls, control-characters, unicode, mask[=email,phone,… or =strict], "
            "repeated-messages, "
            "automatic-messages[=0.05], merge-speakers, minimum-turns=N, maximum-turns=N, maximum-words=N, "
            "exact-duplicates, near-duplicates[=0.8].",
        ),
    ] = None,
    settings: ReaderOptions = None,
    strict: Annotated[bool, Option("--strict", help="Stop at the first rejected row.")] = False,
    encoding: Annotated[str | None, Option(help="Text encoding; detected for logs by default.")] = None,
    holes: Annotated[
        HolePolicy | None,
        Option(
            help="Where a message cannot be read: end the dialogue and begin another one (default for logs), leave out "
            "the dialogue, or treat its neighbours as consecutive (default for public corpora)."
        ),
    ] = None,
    split: Annotated[str | None, Option(help="Percentages of train, valid and test, such as 80/10/10.")] = None,
    split_by: Annotated[
        Literal["conversation", "time"],
        Option(help="--split: at random by conversation, or by time, the oldest conversations for training."),
    ] = "conversation",
    split_seed: Annotated[int, Option(help="--split: seed of the random division.")] = 0,
    limit: Annotated[int | None, Option(min=1, help="Import at most this many dialogues.")] = None,
    region: Regions = None,
    mask_pattern: MaskPatterns = None,
    mask_list: MaskLists = None,
    mask_entities: MaskEntities = None,
    pseudonyms: Pseudonyms = False,
    yes: Annotated[bool, Option("--yes", help="auto: import without asking.")] = False,
    as_json: AsJson = False,
) -> None:
    """Import a log or a corpus into a store, validated and cleaned.

    Examples: `turnwise corpus import auto export.json --out store`

    `turnwise corpus import table chats.csv --out store --set conversation=thread --set text=body --set time=sent_at`

    `turnwise corpus import multiwoz data/multiwoz --out store --step merge-speakers --step minimum-turns=4`
    """
    recognise = reader == AUTO
    if not recognise:  # a mistyped name is refused before heavy imports
        reader, options = choose_reader(reader, path, settings)
    from turnwise.corpus.hygiene.masking import Masking
    from turnwise.corpus.hygiene.steps import MASK, is_mask, masks_phones, plan_steps
    from turnwise.corpus.importing.pipeline import SplitPlan, read_sample

    plan = SplitPlan.parse(split, split_by, split_seed) if split else None
    steps = step or []
    mask_options = (region or (), mask_pattern or (), mask_list or (), mask_entities, pseudonyms)
    if any(mask_options) and not any(map(is_mask, steps)):
        steps = [MASK, *steps]
    masking = Masking.from_options(*mask_options) if any(map(is_mask, steps)) else None
    guess = masks_phones(steps) and not region
    if recognise or guess:
        with temporary_folder(out) as folder:
            if recognise:
                reader, options = choose_reader(reader, path, settings, encoding, folder)
            sample = read_sample(reader, path, SAMPLE, encoding=encoding, scratch=folder, **options)
        if masking is not None and guess:
            masking = replace(masking, regions=choose_regions(sample, "name others with --region COUNTRY"))
        if recognise:
            show_preview(sample, plan_steps(steps), masking)
    if recognise and not yes:
        _confirm_import(reader, path, out, options)
    with progress_bar() as progress:
        store = turnwise.import_corpus(
            reader,
            path,
            out,
            steps=steps,
            strict=strict,
            encoding=encoding,
            masking=masking,
            holes=holes,
            split_plan=plan,
            limit=limit,
            progress=progress,
            **options,
        )
    show(manifest_summary(store), facts(out, import_facts(store.manifest, out)), as_json=as_json)
    warn_of_losses(store.manifest)
    warn_of_language(store, model=model_or_default(None), command=f"turnwise start {shlex.quote(str(out))}")
    if unread := store.manifest["facts"].get(NOT_READ):
        raise TurnwiseError(
            f"files that were not read (see above): {len(unread):,}; {out} has the conversations of the others"
        )


def choose_reader(
    reader: str,
    path: Path,
    settings: Sequence[str] | None,
    encoding: str | None = None,
    scratch: Path | None = None,
) -> tuple[str, dict[str, Any]]:
    """Return the reader of a log and its options; `auto` is replaced by the one that fits, and the reason printed."""
    from turnwise.corpus.registry import get_reader

    pairs = parse_key_values(list(settings or ()))
    if reader != AUTO:
        return reader, get_reader(reader).parse_options(pairs)
    from turnwise.corpus.importing.formats import detect_format

    detection = detect_format(path, encoding, scratch)
    message(f"{path} fits the reader `{detection.reader}`: {detection.why}.")
    return detection.reader, {**detection.options, **get_reader(detection.reader).parse_options(pairs)}


def choose_regions(sample: "Sequence[Dialogue]", advice: str) -> tuple[str, ...]:
    """Return the countries of a log's phone numbers, guessed from a sample, and print them with advice."""
    from turnwise.corpus.hygiene.personal_data.regions import guess_regions

    guess = guess_regions(turn.text for dialogue in sample for turn in dialogue.turns)
    if guess.regions:
        message(f"Phone numbers are masked as in {guess}. This is guessed from the log: if it is wrong, {advice}.")
    else:
        message(f"National phone numbers are masked only next to a word such as 'call': to mask more, {advice}.")
    return guess.regions


def show_preview(sample: "Sequence[Dialogue]", steps: Sequence[str], masking: "Masking | None") -> None:
    """Print the first three conversations of a log, masked if the steps mask them."""
    from turnwise.corpus.hygiene.steps import is_mask, make_step

    shown: Iterable[Dialogue] = sample[:3]
    for step in filter(is_mask, steps):  # other steps may need the whole log
        shown = make_step(step, masking)(shown)
    for dialogue in shown:
        message(f"\n{dialogue.id}")
        for turn in dialogue.turns[:6]:
            message(f"{turn.speaker:>10}  {shorten(turn.text, 100, placeholder='…')}")
        if len(dialogue.turns) > 6:
            message(f"{'':>10}  … {len(dialogue.turns) - 6} more turns")
    message("")


def _confirm_import(reader: str, path: Path, out: Path, options: dict[str, Any]) -> None:
    """Ask whether to import; without a terminal, raise an error that names the command."""
    words = ["turnwise", "corpus", "import", reader, str(path), "--out", str(out)]
    for setting in (each for key, value in options.items() for each in _settings(key, value)):
        words += ["--set", setting]
    change = f"To change how they are read, add your other options to: {shlex.join(words)}"
    if not sys.stdin.isatty():
        raise TurnwiseError(f"check the conversations above; if they are right, add --yes. {change}")
    message(change)
    if not typer.confirm("Import it?", err=True):
        raise typer.Abort


def _settings(key: str, value: Any) -> list[str]:
    """Return an option of a reader as it is written after --set."""
    if isinstance(value, dict):
        return [f"{key}={','.join(f'{name}={target}' for name, target in value.items())}"]
    if isinstance(value, list | tuple):
        return [f"{key}={item}" for item in value]
    return [f"{key}={str(value).lower() if isinstance(value, bool) else value}"]


def manifest_summary(store: "Store") -> dict[str, Any]:
    """Return the manifest without the lists of files."""
    return {key: value for key, value in store.manifest.items() if key not in ("inputs", "files")}


def import_facts(manifest: Mapping[str, Any], folder: Path) -> list[tuple[str, str]]:
    """Return what an import into a folder read, changed and left out."""
    rows = [
        ("read", f"{manifest['read']['dialogues']:,} dialogues, {manifest['read']['utterances']:,} utterances"),
        ("kept", f"{manifest['dialogues']:,} dialogues, {manifest['utterances']:,} utterances"),
    ]
    rows += [("left out", f"{count:,} {name}") for name, count in manifest["left_out"].items()]
    for step in manifest["steps"]:
        changes = ", ".join(f"{count:,} {what}" for what, count in step["changes"].items())
        rows.append((f"step {step['step']}", changes or NO_CHANGE))
    if masking := manifest.get("masking"):
        rows.append(("not masked", "; ".join(masking["not_covered"])))
        rows += [("masked turn", example) for example in masking["examples"]]
    unread = manifest["facts"].get(NOT_READ, ())
    reasons = [each for each in manifest["reasons"].items() if not each[0].startswith("file: ") or not unread]
    rows += [("rejected", f"{count:,} × {reason}") for reason, count in reasons[:5]]
    if manifest["rejected"]:
        rows.append(("", f"all {manifest['rejected']:,} are listed in {folder / 'rejected.jsonl'}"))
    for name, value in manifest["facts"].items():
        if isinstance(value, list):
            rows += [(name, entry) for entry in value]
        elif isinstance(value, dict):
            rows += [(name, f"{key}: {entry}") for key, entry in value.items()]
        else:
            rows.append(("fact", f"{name}: {value}"))
    if manifest["rejected"]:
        rows.append(("holes", f"{manifest['holes']}: {_HOLE_POLICIES[manifest['holes']]}"))
    if manifest["licence"]:
        rows.append(("licence", manifest["licence"]))
    return rows


_HOLE_POLICIES = {
    "split": "dialogues end where a message cannot be read, and continue as another dialogue",
    "drop-dialogue": "dialogues in which a message cannot be read are left out",
    "keep": "the neighbours of a message that cannot be read are treated as consecutive",
}


def warn_of_losses(manifest: Mapping[str, Any]) -> None:
    """Print a warning if more than 5% of the rows were lost or, in a log, unintentionally left out."""
    if "lost" not in manifest:  # a generated store
        return
    from turnwise.corpus.registry import READERS

    lost, total = manifest["lost"]["rows"], manifest["lost"]["of"]
    spec = READERS.get(manifest["reader"])
    kinds = manifest["left_out"].items() if spec is None or spec.is_log else ()
    left_out = {name: count for name, count in kinds if name not in manifest.get("left_out_by_design", ())}
    missing, total = lost + sum(left_out.values()), total + sum(left_out.values())
    if missing > 0.05 * total:
        what = " or ".join(word for word, number in (("lost", lost), ("left out", left_out)) if number)
        cause = "".join(f" Most frequent reason: {reason}." for reason in list(manifest["reasons"])[:1])
        cause += f" Left out most often: {max(left_out, key=left_out.__getitem__)}." if left_out else ""
        message(f"WARNING: {missing:,} of {total:,} rows ({missing / total:.0%}) were {what}.{cause}")
