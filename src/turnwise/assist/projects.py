"""Building a project: adding logs to its store, and making the map and the indexes of the store.

A newer log, or another model, makes a new build beside the one in use, with everything derived from the log. It becomes
the one in use when it is complete. Vectors are cached in the project's folder `.vectors`: after an interruption, and
when a log is added, only what is new is encoded. `built.json` says from which store each part of a build was made.
"""

import json
import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

from turnwise.assist.conversations import Conversations
from turnwise.assist.intents.storage import refit_classifier
from turnwise.assist.labelling.labelling import replace_labelled_map
from turnwise.assist.map.page import write_map
from turnwise.assist.map.utterance_map import DESCRIPTION as MAP_DESCRIPTION
from turnwise.assist.map.utterance_map import JOURNAL, UtteranceMap
from turnwise.assist.responses.responder import Responder, read_canned_answers
from turnwise.core.dialogue import SYSTEM, USER
from turnwise.core.errors import ProjectError
from turnwise.core.files import explaining_damage, read_json, remove_leftovers, replacing, write_atomic
from turnwise.core.journal import Journal
from turnwise.core.progress import Progress, silent
from turnwise.core.project import Part, Project
from turnwise.corpus.hygiene.masking import Masking
from turnwise.corpus.hygiene.steps import is_mask
from turnwise.corpus.importing.merging import MergePlan, merge_stores, plan_merge
from turnwise.corpus.importing.pipeline import SplitPlan, import_corpus
from turnwise.corpus.storage.corpus import read_corpus
from turnwise.corpus.storage.store import Store, is_store
from turnwise.models.encoder import Encoder, encoder_fingerprint
from turnwise.models.vector_cache import VectorCache

_BUILT, _IMPORTING, _VECTORS = "built.json", ".importing", ".vectors"

#: By the ids, so that a conversation stays in its split when the log grows.
_SPLITS = SplitPlan((80, 10, 10), keep=True)


@dataclass(frozen=True, slots=True)
class LogAddition:
    """A log that was added to a project: the manifest of its import, and what it changed (None: it is the first)."""

    manifest: Mapping[str, Any]
    plan: MergePlan | None


def masking_of(project: Project) -> Masking | None:
    """Return how a project masks personal data; None: not at all."""
    if not any(map(is_mask, project.steps)):
        return None
    return Masking.from_options(
        project.regions, project.mask_patterns, project.mask_lists, project.mask_entities, project.pseudonyms
    )


def latest_store(project: Project) -> Path | None:
    """Return the store with all logs that were added, whether or not its build is complete; None if there is none."""
    folders = [_next(project).part("store"), project.part("store")]
    return next((folder for folder in folders if is_store(folder)), None)


def _next(project: Project) -> Project:
    return replace(project, build=project.build + 1)


def remove_unfinished(project: Project) -> None:
    """Remove what interrupted commands have left of unpacked archives and of imports."""
    store = _next(project).part("store")
    shutil.rmtree(store.with_name(_IMPORTING), ignore_errors=True)
    for folder in (project.folder, store):
        remove_leftovers(folder)


def add_log(
    project: Project, path: Path, reader: str, options: Mapping[str, Any], *, progress: Progress = silent
) -> LogAddition:
    """Import a log into a project, cleaned by the project's steps; conversations that are there already are updated."""
    folder = _next(project).part("store")
    target = folder if latest_store(project) is None else folder.with_name(_IMPORTING)
    masking = masking_of(project)
    newer = import_corpus(
        reader,
        path,
        target,
        steps=project.steps,
        masking=masking,
        split_plan=_SPLITS,
        progress=progress,
        **options,
    )
    if target == folder:
        return LogAddition(newer.manifest, None)
    addition = LogAddition(newer.manifest, _merge(project, newer))
    shutil.rmtree(target)
    return addition


def add_store(project: Project, store: Store) -> LogAddition:
    """Add the conversations of a store to a project as they are."""
    if latest_store(project) is not None:
        return LogAddition(store.manifest, _merge(project, store))
    _link_store(store.folder, _next(project).part("store"))
    return LogAddition(store.manifest, None)


def _merge(project: Project, newer: Store) -> MergePlan:
    folder = latest_store(project)
    assert folder is not None
    store = Store(folder)
    plan = plan_merge(store, newer)
    if plan.new or plan.replaced:
        merge_stores(store, newer, plan, _next(project).part("store"))
    return plan


def _link_store(store: Path, folder: Path) -> None:
    """Copy a store, whose files never change, by links if possible, in place of what an interrupted run left."""

    def link(source: str, target: str) -> None:
        try:
            os.link(source, target)
        except OSError:  # on another file system
            shutil.copy2(source, target)

    folder.parent.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(folder, ignore_errors=True)
    with replacing(folder) as part:
        shutil.copytree(store, part, copy_function=link)


class ProjectBuilder:
    """Makes the map and the indexes of a project, each unless it is up to date, and puts them to use."""

    def __init__(self, project: Project, encoder: Encoder, progress: Progress = silent):
        """Take the latest store; `encoder` is `project.model`, which may differ from the model in use."""
        self._progress = progress
        fingerprint = encoder_fingerprint(encoder)[:16]
        self._encoder = VectorCache(encoder, project.folder / _VECTORS / fingerprint)
        new = _next(project)
        if not is_store(new.part("store")):
            encoders = {version["encoder"] for version in _read_built(project).values()}
            if encoders == {fingerprint}:
                new = project
            else:
                _link_store(project.part("store"), new.part("store"))
        self._before, self._project = project, new
        self._corpus = read_corpus(new.part("store"))
        self._speakers = self._corpus.stores[0].speakers()
        self._answers = read_canned_answers(project.answers)
        self._version = {"store": self._corpus.stores[0].manifest["generation"], "encoder": fingerprint}

    def build(self) -> list[Part]:
        """Make what is missing or out of date, and use it from then on; return the parts that were made."""
        steps: dict[Part, Callable[[], None]] = {"map": self._make_map}
        if SYSTEM in self._speakers or self._answers:
            steps["responses"] = partial(self._index, "responses")
        steps["conversations"] = partial(self._index, "conversations")
        built = _read_built(self._project)
        made: list[Part] = []
        for part, make in steps.items():
            if built.get(part) == self._version and self._project.part(part).is_dir():
                continue
            make()
            made.append(part)
            built[part] = self._version
            write_atomic(self._project.part(part).with_name(_BUILT), json.dumps(built, indent=2) + "\n")
        if self._project != self._before:
            model = Project.load(self._before.folder).model
            project = self._project.update(model=self._project.model, build=self._project.build)
            self._remove_old_builds()
            if project.model != model and refit_classifier(project):
                made.append("intents")
        return made

    def _make_map(self) -> None:
        """Make the map, of what users say; it takes over the labels of the one in use when it is opened."""
        folder, before = self._project.part("map"), self._before.part("map")
        earlier = UtteranceMap.load(before) if (before / MAP_DESCRIPTION).is_file() else None
        if earlier is not None and (len(earlier) < 2 or not earlier.identity().matches(self._encoder)):
            earlier = None
        if folder != before:  # as in `_index`
            shutil.rmtree(folder, ignore_errors=True)
        with replacing(folder) as part:
            write_map(
                self._encoder,
                self._corpus,
                part,
                title=self._project.folder.name,
                speakers=[USER] if USER in self._speakers else None,
                model=self._project.model,
                earlier=earlier,
                progress=self._progress,
            )
        if folder != before and before.is_dir():
            replace_labelled_map(folder, before)

    def _index(self, part: Literal["responses", "conversations"]) -> None:
        folder = self._project.part(part)
        if self._project != self._before:  # nobody uses it yet, so what an interrupted run left is not needed
            shutil.rmtree(folder, ignore_errors=True)
        index = (Responder if part == "responses" else Conversations).open(folder, self._encoder)
        if part == "conversations" or SYSTEM in self._speakers:
            index.index(self._corpus, total=len(self._corpus), progress=self._progress)
        if isinstance(index, Responder):
            index.add(self._answers, progress=self._progress)
        else:
            index.cluster(keep=True, progress=self._progress)  # which takes too long for a request

    def _remove_old_builds(self) -> None:
        """Remove builds before the previous one, but for labelled maps, unless a running service uses them."""
        for folder in (self._project.folder / "builds").iterdir():
            if not folder.name.isdecimal() or int(folder.name) >= self._before.build:
                continue
            try:
                with Journal(folder / "map" / JOURNAL) as journal:
                    is_labelled = bool(journal.entries)
                    for path in folder.iterdir():
                        if path.name != "map" or not is_labelled:
                            shutil.rmtree(path) if path.is_dir() else path.unlink()
            except ProjectError:  # open in a service
                continue
            if not is_labelled:
                folder.rmdir()


def _read_built(project: Project) -> dict[str, dict[str, str]]:
    path = project.part("store").with_name(_BUILT)
    with explaining_damage(path, ProjectError, "remove this file, and `turnwise start` builds everything again"):
        built: dict[str, dict[str, str]] = read_json(path) if path.exists() else {}
        return {part: {name: version[name] for name in ("store", "encoder")} for part, version in built.items()}
