"""Folders with logs of several formats: every file is read by the reader that fits it."""

from dataclasses import replace
from pathlib import Path

from turnwise.core.errors import CorpusError
from turnwise.corpus.importing.formats import LogGroup, detect_groups
from turnwise.corpus.readers.shared.files import unpacked
from turnwise.corpus.readers.shared.speakers import Speakers
from turnwise.corpus.registry import get_reader
from turnwise.corpus.source.corpus_source import CorpusSource, Dialogues
from turnwise.corpus.source.dialogue_builder import empty_text_set
from turnwise.corpus.source.encodings import DETECT
from turnwise.corpus.storage.rejections import NOT_READ

_AUTO = "auto"  # the reader of an archive with files of several


def read(source: CorpusSource, *, speakers: Speakers = None) -> Dialogues:
    """Read the files of a folder or .zip file, each by the reader that fits it; files without one are rejected.

    A conversation whose id is that of another one in files of another format gets the name of a file in front.
    """
    return _read(source, speakers)


def _read(source: CorpusSource, speakers: Speakers, *, in_archive: bool = False) -> Dialogues:
    encoding = None if source.encoding == DETECT else source.encoding
    groups, unread = detect_groups(source.root, encoding, source.scratch, in_archive=in_archive)
    for file, reason in unread.items():
        _report(source, file, reason)
    for group in groups:
        try:
            if group.detection.reader == _AUTO:
                with unpacked(replace(source, root=group.root), "*") as inner:
                    yield from _read(inner, speakers, in_archive=True)
            else:
                yield from _read_group(source, group, speakers)
        except CorpusError as error:  # such as an agent in several languages
            for file in sorted(group.files):
                _report(source, file, f"cannot be read by `{group.detection.reader}`: {error}")


def _report(source: CorpusSource, file: Path, reason: str) -> None:
    source.reject(file, None, "file", reason)
    source.facts.setdefault(NOT_READ, []).append(f"{source.reported_name(file)} {source.mask(reason)}")


def _read_group(source: CorpusSource, group: LogGroup, speakers: Speakers) -> Dialogues:
    reader, options = get_reader(group.detection.reader), dict(group.detection.options)
    if speakers and "speakers" in reader.options:
        options["speakers"] = speakers
    times = None if source.start_times is None else dict[str, float]()
    files = None if group.root in group.files else frozenset(group.files)  # an archive has other files
    part = replace(source, root=group.root, name=reader.name, selected=files, ids=empty_text_set(), start_times=times)
    prefix = source.relative_name(min(group.files))
    for dialogue in reader.read(part, **options):
        name, first = dialogue.id, dialogue.id.rpartition("#")[0]
        if name in source.ids or f"{prefix}/{first}" in source.ids:
            dialogue = replace(dialogue, id=f"{prefix}/{name}")
        source.ids.add(dialogue.id)
        if source.start_times is not None and times and name in times:
            source.start_times[dialogue.id] = times[name]
        yield dialogue
