"""Recognising the formats of a log, which may be a folder with files of several: which readers fit, and why."""

import mimetypes
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import islice
from pathlib import Path

from turnwise.core.errors import CorpusError
from turnwise.core.project import DESCRIPTION
from turnwise.corpus.importing.detection import SPEAKER_LINE, UNKNOWN, Detection, detect_files
from turnwise.corpus.importing.log_sample import JSON, LogSample
from turnwise.corpus.readers.shared.files import unpacked
from turnwise.corpus.readers.slack import LISTS as SLACK_LISTS
from turnwise.corpus.source.corpus_source import CorpusSource

_MAX_REASONS = 10  # files that a message lists

#: Readers that take a .zip file as it is.
_ZIP_READERS = (
    "slack",
    "teams",
    "discord",
    "whatsapp",
    "kakaotalk",
    "zoom",
    "telegram",
    "messenger",
    "mattermost",
    "rocketchat",
    "discourse",
    "gitter",
    "dialogflow",
    "lex",
)
_DAY_FILE = re.compile(r"\d{4}-\d\d-\d\d\.json")

#: Files beside the messages in the exports of ConvoKit.
_CONVOKIT_LISTS = re.compile(r"(?:speakers|users|conversations|corpus|index)\.json")


@dataclass(slots=True)
class LogGroup:
    """Files of a log that one reader reads with the same options."""

    detection: Detection
    root: Path  # what the reader is given: the log, or a .zip file in it
    files: set[Path]


@dataclass(frozen=True, slots=True)
class _LogState:
    """What the formats of a log depend on."""

    path: Path
    encoding: str | None
    in_archive: bool
    files: tuple[tuple[Path, int, int], ...]  # with their sizes and the times of their last changes
    scratch: Path | None = field(compare=False)


def detect_format(path: Path, encoding: str | None = None, scratch: Path | None = None) -> Detection:
    """Return the reader for a file or folder, and its options; raise a CorpusError if nothing fits.

    The reader is `auto` if a folder needs several, or has files that cannot be read. Archives are
    unpacked in the folder `scratch`.
    """
    groups, unread = detect_groups(path, encoding, scratch)
    if len(groups) == 1 and not unread and groups[0].root == path:
        return groups[0].detection
    lines = [
        f"`{group.detection.reader}` for {len(group.files):,} {'file' if len(group.files) == 1 else 'files'}:"
        f" {group.detection.why}"
        for group in groups
    ]
    lines += [f"not read: {file.relative_to(path)} {reason}" for file, reason in islice(unread.items(), _MAX_REASONS)]
    lines += [f"not read: {len(unread) - _MAX_REASONS:,} more files"] * (len(unread) > _MAX_REASONS)
    return Detection("auto", "\n  ".join(["each file by its own reader", *lines]))


def detect_groups(
    path: Path, encoding: str | None = None, scratch: Path | None = None, *, in_archive: bool = False
) -> tuple[list[LogGroup], dict[Path, str]]:
    """Return the files of a log by the readers that fit them, and why others cannot be read.

    An archive with files of other readers than those of `_ZIP_READERS` is a group of the reader `auto`.
    """
    if not path.exists():
        raise CorpusError(f"{path} does not exist")
    if holds_dialogues(path):
        raise CorpusError(f"{path} is a store already: use it as it is")
    files = [path] if path.is_file() else list(_log_files(path))
    states = ((file, (status := file.stat()).st_size, status.st_mtime_ns) for file in files)
    return _detect_groups(_LogState(path, encoding, in_archive, tuple(states), scratch))


@lru_cache(maxsize=4)  # a preview and an import detect the formats of the same files
def _detect_groups(state: _LogState) -> tuple[list[LogGroup], dict[Path, str]]:
    path, encoding, scratch = state.path, state.encoding, state.scratch
    log = LogSample(path, encoding, [file for file, *_ in state.files])
    groups: list[LogGroup] = []
    unread: dict[Path, str] = {}
    done: set[Path] = set()
    for export, files, others in _find_exports(log):
        groups.append(LogGroup(export, path, set(files)))
        done |= {*files, *others}
    for unit in log.units([file for file in log.files if file not in done]):
        root = unit[0] if _is_archive(unit[0]) else path
        try:
            if _is_archive(root) and state.in_archive:
                raise CorpusError("is an archive within an archive: unpack it")
            if _is_archive(root):
                detection = _detect_archive(root, encoding, scratch)
            else:
                detection = detect_files(path, encoding, unit)
        except CorpusError as error:
            unread |= dict.fromkeys(unit, str(error).removeprefix(f"{root} "))
            continue
        found = LogGroup(detection, root, {*unit})
        for group in groups:
            if (group.detection.reader, group.detection.options, group.root) == (
                detection.reader,
                detection.options,
                root,
            ):
                group.files |= found.files
                break
        else:
            groups.append(found)
    for file in list(unread):
        for group in groups:
            if file in unread and _belongs(log, file, group.detection.reader):
                group.files.add(file)
                del unread[file]
    if not groups:
        reasons = [f"{path if file == path else file.name} {reason}" for file, reason in unread.items()]
        nothing = f"{path} contains no log: expected other files than pictures, sound and video"
        advice = (
            ". Name a reader of `turnwise corpus list`: `table` reads tables whose columns you name, `json` reads JSON"
        )
        is_unknown = any(reason.startswith(UNKNOWN) for reason in unread.values())
        raise CorpusError(("; ".join(reasons[:_MAX_REASONS]) or nothing) + advice * is_unknown)
    return sorted(groups, key=lambda group: min(group.files)), unread


def _is_archive(path: Path) -> bool:
    return path.suffix.lower() == ".zip" and path.is_file()


def _detect_archive(path: Path, encoding: str | None, scratch: Path | None) -> Detection:
    with unpacked(CorpusSource(path, "sample", lambda rejection: None, scratch=scratch), "*") as source:
        try:
            groups, _ = detect_groups(source.root, encoding, in_archive=True)
        except CorpusError as error:
            raise CorpusError(
                f"contains no file that is recognised (unpack it to name columns or paths): {error}"
            ) from None
    readers = [group.detection.reader for group in groups]
    if len(readers) == 1 and readers[0] in _ZIP_READERS:
        return groups[0].detection
    parts = (f"`{group.detection.reader}`: {group.detection.why}" for group in groups)
    return Detection("auto", f"{path.name} is an archive, in which each file has its own reader; {'; '.join(parts)}")


def _belongs(log: LogSample, file: Path, reader: str) -> bool:
    """Return whether a reader that fits other files takes a file that is not recognised by itself."""
    if reader == "text":
        return file.suffix == ".txt" and SPEAKER_LINE.match(log.source.first_line(file)) is not None
    if reader == "slack":
        return SLACK_LISTS.fullmatch(file.name) is not None
    return reader == "zendesk" and file in log.named(*JSON) and "users" in file.name.lower()


def holds_dialogues(folder: Path) -> bool:
    """Return whether a folder is a store with dialogues."""
    from turnwise.corpus.storage.store import is_store  # here, because it imports pyarrow

    return is_store(folder) and any(folder.glob("dialogues-*.parquet"))  # Amazon Lex has a manifest.json too


def _log_files(folder: Path) -> Iterator[Path]:
    """Yield the files of a folder, but none that is hidden, a picture, sound or video, or of a store or project."""
    for place, folders, names in os.walk(folder):
        inner = Path(place)
        folders[:] = sorted(
            name
            for name in folders
            if not name.startswith((".", "__MACOSX"))
            and not holds_dialogues(inner / name)
            and not (inner / name / DESCRIPTION).exists()
        )
        for name in sorted(names):
            kind = mimetypes.guess_type(name, strict=False)[0] or ""
            if not name.startswith(".") and not kind.startswith(("image/", "audio/", "video/")):
                yield inner / name


def _find_exports(log: LogSample) -> Iterator[tuple[Detection, list[Path], list[Path]]]:
    """Yield the exports whose layout is recognised: the files that their readers read, and the files beside them."""
    days = [file for file in log.files if _DAY_FILE.fullmatch(file.name)]
    above = {parent for file in days for parent in file.parents}
    lists = [file for file in log.files if SLACK_LISTS.fullmatch(file.name) and file.parent in above]
    if any(file.name in ("users.json", "channels.json") for file in lists):
        yield Detection("slack", f"users.json or channels.json, and {len(days)} files named by day"), days, lists
    if found := [file for file in log.files if file.name == "utterances.jsonl"]:
        folders = {file.parent for file in found}
        beside = [file for file in log.files if file.parent in folders and _CONVOKIT_LISTS.fullmatch(file.name)]
        yield Detection("convokit", "a file named utterances.jsonl"), found, beside
    documents = log.named(".yml", ".yaml")
    for file in documents:
        if key := re.search(r"^(?:nlu|stories|rules)(?=:)", log.source.read_start(file), re.MULTILINE):
            yield Detection("rasa", f"{file.name} has the key {key[0]!r}"), documents + log.named(".md"), []
            break
    if found := [file for file in log.files if file.name == "Intent.json"]:
        yield Detection("lex", "files named Intent.json"), found, _of_assistant(log, found, "BotLocales")
    if found := [it for it in log.files if "_usersays_" in it.name or it.parent.name == "trainingPhrases"]:
        yield Detection("dialogflow", "training phrases of intents"), found, _of_assistant(log, found, "intents")


def _of_assistant(log: LogSample, files: Sequence[Path], below: str) -> list[Path]:
    """Return the JSON files of assistants, some of whose files are in a folder of that name."""
    roots = {next((each.parent for each in file.parents if each.name == below), file.parent) for file in files}
    return [it for it in log.named(".json") if it.name == "manifest.json" or not roots.isdisjoint(it.parents)]
