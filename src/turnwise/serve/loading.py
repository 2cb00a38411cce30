"""Loading: from what a service was told to serve to the models that do it."""

import re
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from turnwise.serve.batching import BatchedEncoder, Batcher, Pass
from turnwise.serve.models import Models, OneAtATime, ServedIntents
from turnwise.serve.settings import ServeError, Settings

Observe = Callable[[Pass], None]

_INTENTS = "intents"
_NUMBERED = re.compile(rf"{_INTENTS}(-(?P<number>[1-9][0-9]*))?")

#: The page that an evaluation writes.
REPORT = "report.html"


def check(settings: Settings) -> None:
    """Looks for what was named, before seconds are spent on loading.

    Raises:
        ServeError: if a folder or file is missing.
    """
    for folder, option in ((settings.intents, "--intents"), (settings.map, "--map"), (settings.report, "--report")):
        if folder is not None and not folder.is_dir():
            raise ServeError(f"there is no folder {folder} ({option})")
    if settings.report is not None and not (settings.report / REPORT).is_file():
        raise ServeError(
            f"{settings.report} has no {REPORT} (--report): `turnwise evaluate MODEL --out DIR` writes one"
        )


def load(settings: Settings, observe: Observe) -> Models:
    """Loads what can be loaded twice: everything but journals.

    Args:
        settings: what is served.
        observe: told of each forward pass.
    """
    from turnwise.models.encoder import Encoder

    check(settings)
    models = Models(settings.model, _batcher(Encoder.load(settings.model), settings, observe))
    try:
        if settings.reranker is not None:
            from turnwise.models.reranker import Reranker

            models.reranker = OneAtATime(Reranker.load(settings.reranker))
        if settings.responses is not None:
            from turnwise.assist.responses.responder import Responder

            models.responder = Responder.open(settings.responses, models.encoder, models.reranker)
        if settings.conversations is not None:
            from turnwise.assist.conversations.conversations import Conversations

            models.conversations = Conversations.open(settings.conversations, models.encoder)
    except BaseException:
        models.stop()
        raise
    return models


def open_journals(models: Models, settings: Settings, observe: Observe) -> None:
    """Opens what changes: examples of intents, and labels; one at a time has them open."""
    with ExitStack() as opened:
        if settings.map is not None:
            from turnwise.assist.labelling.labelling import Labelling

            models.labelling = Labelling.open(settings.map)
            opened.callback(models.labelling.close)
        folder = settings.intents or (None if settings.map is None else newest_intents(settings.map))
        if folder is not None:
            models.intents = open_intents(folder, models, settings, observe)
        opened.pop_all()


def open_intents(folder: Path, models: Models, settings: Settings, observe: Observe) -> ServedIntents:
    """Opens a classifier and its examples; where it was fitted with another encoder than the service's, with that one."""
    from turnwise.assist.intents.storage import IntentFolder, bundled_encoder, is_classifier
    from turnwise.models.identity import EncoderMismatchError

    if is_classifier(folder) and bundled_encoder(folder) is None:
        with suppress(EncoderMismatchError):
            return ServedIntents(IntentFolder.open(folder, encoder=models.encoder), models.batcher)
    opened = IntentFolder.open(folder)
    batcher = _batcher(opened.classifier.encoder_, settings, observe)
    models.own_batchers.append(batcher)
    opened.classifier.encoder_ = BatchedEncoder(batcher)
    return ServedIntents(opened, batcher)


def _batcher(encoder: Any, settings: Settings, observe: Observe) -> Batcher:
    limits = settings.limits
    return Batcher(encoder, queue_texts=limits.queue, batch_tokens=limits.batch_tokens, observe=observe)


def close_journals(models: Models) -> None:
    """Lets others open what changes; what is in memory can still be asked."""
    if models.intents is not None:
        models.intents.folder.close()
    if models.labelling is not None:
        models.labelling.close()


# ---- classifiers that were fitted on a map's labels lie in its folder: `intents`, then `intents-2`, `intents-3`, …


def newest_intents(map_folder: Path) -> Path | None:
    """The classifier that was fitted last on a map's labels; None: there is none."""
    numbers = _numbers(map_folder)
    return _numbered(map_folder, max(numbers)) if numbers else None


def unused_intents(map_folder: Path) -> Path:
    """Where the next classifier that is fitted on a map's labels goes."""
    return _numbered(map_folder, max(_numbers(map_folder), default=0) + 1)


def _numbered(map_folder: Path, number: int) -> Path:
    return map_folder / (_INTENTS if number == 1 else f"{_INTENTS}-{number}")


def _numbers(map_folder: Path) -> list[int]:
    found = [_NUMBERED.fullmatch(each.name) for each in map_folder.iterdir() if each.is_dir()]
    return [int(each["number"] or 1) for each in found if each is not None]
