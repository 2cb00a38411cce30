"""From labels to intents while the service runs: a classifier is fitted, written beside the map, and taken into use."""

import shutil
from pathlib import Path

from turnwise.assist.intents.classifier import IntentClassifier
from turnwise.assist.labelling.labelling import Labelling
from turnwise.core.files import sync
from turnwise.serve.loading import Observe, open_intents, unused_intents
from turnwise.serve.models import Models
from turnwise.serve.settings import Settings


def fit_beside(labelling: Labelling, models: Models) -> Path:
    """Fits a classifier on labels and writes it to a new folder in that of the map; when this comes back, it is on disk.

    An earlier one stays as it is: examples may have been added to it.

    Args:
        labelling: the labels.
        models: have the encoder that it is fitted with.

    Raises:
        LabellingError: if nothing is labelled.
        IntentError: if the labels are too few.
    """
    classifier = labelling.fit(models.encoder)
    classifier.encoder = models.name  # it is written by its name, not with all of its weights
    map_folder = labelling.folder
    folder = unused_intents(map_folder)
    unfinished = folder.with_name(f".writing-{folder.name}")
    shutil.rmtree(unfinished, ignore_errors=True)
    classifier.save(unfinished)
    unfinished.rename(folder)
    sync(map_folder)
    return folder


def take_into_use(folder: Path, models: Models, settings: Settings, observe: Observe) -> IntentClassifier:
    """Has intents told by another classifier from now on; nobody else may be changing anything."""
    former, models.intents = models.intents, open_intents(folder, models, settings, observe)
    if former is not None:
        former.folder.close()
    return models.intents.folder.classifier
