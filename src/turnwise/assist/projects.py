"""Building a project: adding logs to its store, and making the map and the indexes of the store.

Vectors are cached in the project's folder `.vectors`: after an interruption, and when a log is added, only what is new
is encoded. `.built.json` says from which store each part was made.
"""

import itertools
import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

from turnwise.assist.conversations import Conversations
from turnwise.assist.labelling.labelling import Labelling
from turnwise.assist.map.page import write_map
from turnwise.assist.map.utterance_map import DESCRIPTION as MAP_DESCRIPTION
from turnwise.assist.map.utterance_map import JOURNAL, UtteranceMap
from turnwise.assist.responses.responder import Responder
from turnwise.core.dialogue import SYSTEM, USER
from turnwise.core.files import read_json, replacing, write_atomic
from turnwise.core.progress import Progress, silent
from turnwise.core.project import Part, Project
from turnwise.corpus.hygiene.masking import Masking
from turnwise.corpus.importing.merging import MergePlan, merge_stores, plan_merge
from turnwise.corpus.importing.pipeline import import_corpus
from turnwise.corpus.storage.corpus import read_corpus
from turnwise.corpus.storage.store import Store, is_store
from turnwise.models.encoder import Encoder, encoder_fingerprint
from turnwise.models.vector_cache import VectorCache

_BUILT, _IMPORTING, _NEW_MAP, _VECTORS = ".built.json", ".importing", ".map", ".vectors"


@dataclass(frozen=True, slots=True)
class LogAddition:
    """A log that was added to a project: the manifest of its import, and what it changed (None: it is the first)."""

    manifest: Mapping[str, Any]
    plan: MergePlan | None


def masking_of(project: Project) -> Masking | None:
    """Return how a project masks personal data beyond its steps; None: as the steps say."""
    return Masking(regions=project.regions) if project.regions else None


def add_log(
    project: Project, path: Path, reader: str, options: Mapping[str, Any], *, progress: Progress = silent
) -> LogAddition:
    """Import a log into a project, cleaned by the project's steps; conversations that are there already are updated."""
    masking = masking_of(project)
    folder = project.part("store")
    target = project.folder / _IMPORTING if is_store(folder) else folder
    newer = import_corpus(reader, path, target, steps=project.steps, masking=masking, progress=progress, **options)
    if target == folder:
        return LogAddition(newer.manifest, None)
    addition = LogAddition(newer.manifest, _add(project, newer))
    shutil.rmtree(target)
    return addition


def add_store(project: Project, store: Store) -> LogAddition:
    """Add the conversations of a store to a project as they are."""
    folder = project.part("store")
    if is_store(folder):
        return LogAddition(store.manifest, _add(project, store))
    with replacing(folder) as part:
        shutil.copytree(store.folder, part)
    return LogAddition(store.manifest, None)


def _add(project: Project, newer: Store) -> MergePlan:
    store = Store(project.part("store"))
    plan = plan_merge(store, newer)
    if plan.replaced:  # the indexes would keep the earlier versions
        for part in ("responses", "conversations"):
            shutil.rmtree(project.folder / part, ignore_errors=True)
    if plan.new or plan.replaced:
        merge_stores(store, newer, plan)
    return plan


class ProjectBuilder:
    """Makes the map and the indexes of a project, each unless it is up to date."""

    def __init__(self, project: Project, progress: Progress = silent):
        self._project = project
        self._progress = progress
        self._corpus = read_corpus(project.part("store"))
        self._speakers = self._corpus.stores[0].speakers()
        progress("loading the encoder", 0)
        encoder = Encoder.load(project.model)
        fingerprint = encoder_fingerprint(encoder)[:16]
        self._encoder = VectorCache(encoder, project.folder / _VECTORS / fingerprint)
        self._version = {"store": self._corpus.stores[0].manifest["generation"], "encoder": fingerprint}

    def build(self) -> list[Part]:
        """Make what is missing or out of date; return the parts that were made."""
        steps: dict[Part, Callable[[], None]] = {"map": self._make_map}
        if SYSTEM in self._speakers:
            steps["responses"] = partial(self._index, "responses")
        steps["conversations"] = partial(self._index, "conversations")
        path = self._project.folder / _BUILT
        built = read_json(path) if path.exists() else {}
        made: list[Part] = []
        for part, make in steps.items():
            folder, version = self._project.part(part), built.get(part)
            if version == self._version and folder.is_dir():
                continue
            if part != "map" and version is not None and version["encoder"] != self._version["encoder"]:
                shutil.rmtree(folder, ignore_errors=True)
            make()
            made.append(part)
            built[part] = self._version
            write_atomic(path, json.dumps(built, indent=2) + "\n")
        return made

    def _make_map(self) -> None:
        """Make the map, of what users say, and put it in the place of the earlier one, whose labels are copied."""
        folder, new = self._project.part("map"), self._project.folder / _NEW_MAP
        shutil.rmtree(new, ignore_errors=True)
        earlier = UtteranceMap.load(folder) if (folder / MAP_DESCRIPTION).is_file() else None
        if earlier is not None and (len(earlier) < 2 or not earlier.identity().matches(self._encoder)):
            earlier = None
        write_map(
            self._encoder,
            self._corpus,
            new,
            title=self._project.folder.name,
            speakers=[USER] if USER in self._speakers else None,
            model=self._project.model,
            earlier=earlier,
            progress=self._progress,
        )
        if (folder / JOURNAL).exists():
            with Labelling.open(folder) as before, Labelling.open(new) as labelling:
                if any(label is not None for label in before.labels()):
                    labelling.copy_labels(before)
        for classifier in [path for path in folder.glob("intents*") if path.is_dir()]:
            shutil.copytree(classifier, new / classifier.name)
        if (folder / JOURNAL).exists():  # a labelled map is kept, as map-1, map-2, …
            names = (folder.with_name(f"{folder.name}-{number}") for number in itertools.count(1))
            folder.replace(next(archive for archive in names if not archive.exists()))
        elif folder.exists():
            shutil.rmtree(folder)
        new.replace(folder)

    def _index(self, part: Literal["responses", "conversations"]) -> None:
        kind = Responder if part == "responses" else Conversations
        index = kind.open(self._project.part(part), self._encoder)
        index.index(self._corpus, total=len(self._corpus), progress=self._progress)
