"""Loading and replacing models. A reload loads new models beside the old ones, which finish their requests."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from turnwise.assist.conversations import Conversations
from turnwise.assist.intents.classifier import IntentClassifier
from turnwise.assist.intents.classifier_files import stored_encoder
from turnwise.assist.intents.storage import IntentFolder, add_classifier, add_version, classifier_versions
from turnwise.assist.labelling.labelling import Labelling
from turnwise.assist.responses.responder import Answer, Responder, read_canned_answers, record_canned_answers
from turnwise.core.errors import EncoderMismatchError, TurnwiseError
from turnwise.core.imports import require, without_garbage_collection
from turnwise.core.project import Project
from turnwise.models.encoder import Encoder
from turnwise.serve.batching import BatchedEncoder, Batcher
from turnwise.serve.example_changes import ExampleChanges
from turnwise.serve.observability import ServiceMetrics
from turnwise.serve.settings import ServeSettings

#: The page that an evaluation writes.
REPORT = "report.html"

#: Texts that are encoded at once for work in the background.
_BACKGROUND_TEXTS = 8

#: The folder of classifiers that were fitted on a map's labels, in the map's folder; projects have their own.
INTENTS = "intents"


class ServedIntents(ExampleChanges):
    """An intent classifier with its examples on disk, and its encoder's batcher."""

    def __init__(self, folder: IntentFolder, batcher: Batcher, observe: Callable[[bool], None]):
        super().__init__(folder, observe)
        self.batcher = batcher


def check_settings(settings: ServeSettings) -> None:
    """Raise an error if a folder, a file or a package is missing, before anything is loaded."""
    if settings.runtime == "openvino":
        require("openvino", extra="openvino")
    if settings.reranker is not None:
        require("torch", extra="train")
    if settings.responses is not None or settings.conversations is not None:
        require("pyarrow", "lancedb", extra="serve")
    if settings.map is not None:
        require("pyarrow", "sklearn", extra="map")
    for folder, option in ((settings.intents, "--intents"), (settings.map, "--map"), (settings.report, "--report")):
        if folder is not None and not folder.is_dir():
            raise TurnwiseError(f"there is no folder {folder} ({option})")
    if settings.report is not None and not (settings.report / REPORT).is_file():
        raise TurnwiseError(f"{settings.report} has no {REPORT} (--report): `turnwise evaluate` writes one")


class LoadedModels:
    """Everything that answers requests."""

    def __init__(self, settings: ServeSettings, metrics: ServiceMetrics):
        """Load everything except journals, which only one process may open at a time."""
        check_settings(settings)
        self.name = settings.model
        self.users = 0  # requests that are using these models
        self.is_retired = False  # replaced by a reload
        self.reranker: Any = None  # a `Reranker`, used in `Service.in_reranking_thread`
        self.responder: Responder | None = None
        self.conversations: Conversations | None = None
        self.intents: ServedIntents | None = None
        self.labelling: Labelling | None = None
        self._settings = settings
        self._metrics = metrics
        self._batchers: list[Batcher] = []  # of the encoder, and of encoders that classifiers brought with them
        self.batcher = self._start_batcher(Encoder.load(settings.model, runtime=settings.runtime))
        #: The encoder, for blocking threads.
        self.encoder = BatchedEncoder(self.batcher)
        try:
            if settings.reranker is not None:
                with without_garbage_collection():
                    from turnwise.models.reranker import Reranker

                self.reranker = Reranker.load(settings.reranker)
            if settings.responses is not None:
                self.responder = Responder.open(settings.responses, self.encoder, self.reranker)
                if settings.project is not None:  # those that were added while it was being built
                    self.responder.add(read_canned_answers(Project.load(settings.project).answers))
            if settings.conversations is not None:
                self.conversations = Conversations.open(settings.conversations, self.encoder)
        except BaseException:
            self.stop()
            raise

    @property
    def waiting(self) -> int:
        """Texts waiting to be encoded."""
        return sum(each.waiting for each in self._batchers)

    def stop(self) -> None:
        """End the threads, once no request uses the models."""
        for each in self._batchers:
            each.close()

    def open_journals(self, previous: ServedIntents | None = None) -> None:
        """Open what can be changed: intent examples, with those added to a previous classifier, and map labels."""
        settings = self._settings
        with ExitStack() as stack:
            if settings.map is not None:
                self.labelling = Labelling.open(settings.map)
                stack.callback(self.labelling.close)
            folder = settings.intents or (None if settings.map is None else latest_intents(settings.map))
            if folder is not None:
                self.intents = self._open_intents(folder, previous)
            stack.pop_all()

    def close_journals(self) -> None:
        """Let other processes open the journals; the models can still be used for reading."""
        if self.intents is not None:
            self.intents.close()
        if self.labelling is not None:
            self.labelling.close()

    def fit_intents(self, labelling: Labelling) -> Path:
        """Fit a classifier on a map's labels and write it to a new folder, of the project or the map; others stay."""
        classifier = labelling.fit(self.encoder)
        if self._settings.project is not None:
            return add_classifier(Project.load(self._settings.project), classifier, encoder_name=self.name)
        return add_version(labelling.folder / INTENTS, classifier, encoder_name=self.name)

    def replace_intents(self, folder: Path) -> IntentClassifier:
        """Use another classifier from now on; called within `Service.change`."""
        self.intents = self._open_intents(folder, self.intents)
        return self.intents.folder.classifier

    def add_answers(self, responder: Responder, answers: Sequence[Answer]) -> int:
        """Add canned answers, in a project to its journal as well; return how many are new."""
        if self._settings.project is not None:
            record_canned_answers(Project.load(self._settings.project).answers, answers)
        return responder.add(answers).added

    def _open_intents(self, folder: Path, previous: ServedIntents | None) -> ServedIntents:
        """Open a classifier with the service's encoder, or with its own if it was fitted with another one.

        If a new one replaces the previous one, it takes over the examples that were added to that.
        """
        encoder, is_bundled = stored_encoder(folder)
        opened = None
        if not is_bundled:
            with suppress(EncoderMismatchError):
                opened = self._open_intents_with(self.batcher, folder)
        if opened is None:
            opened = self._open_intents_with(self._start_batcher(Encoder.load(encoder)), folder)
        if previous is not None:
            previous.close()
            if _is_newer(folder, previous.folder.folder):
                opened.folder.take_over(previous.folder.folder)
        return opened

    def _open_intents_with(self, batcher: Batcher, folder: Path) -> ServedIntents:
        # predictions wait for few of the examples that are encoded in the background
        encoder = BatchedEncoder(batcher, texts_per_job=_BACKGROUND_TEXTS)
        opened = IntentFolder.open(folder, encoder=encoder, apply=False)

        def count(succeeded: bool) -> None:
            self._metrics.recalibrations.labels("done" if succeeded else "failed").inc()

        return ServedIntents(opened, batcher, count)

    def _start_batcher(self, encoder: Any) -> Batcher:
        queue, tokens = self._settings.limits.queue, self._settings.limits.batch_tokens
        batcher = Batcher(encoder, queue_texts=queue, batch_tokens=tokens, observe=self._metrics.count_pass)
        self._batchers.append(batcher)
        return batcher


def latest_intents(map_folder: Path) -> Path | None:
    """Return the folder of the classifier that was fitted last on a map's labels, if any."""
    numbers = classifier_versions(map_folder / INTENTS)
    return map_folder / INTENTS / str(numbers[-1]) if numbers else None


def _is_newer(folder: Path, previous: Path) -> bool:
    """Return whether a classifier was made after another one that was in use."""
    if folder.parent != previous.parent:
        return True
    return folder.name.isdecimal() and previous.name.isdecimal() and int(folder.name) > int(previous.name)
