"""What labels are for: a table of utterances with their labels, and a classifier fitted on them."""

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from turnwise.assist.intents.classifier import IntentClassifier
from turnwise.assist.intents.examples import OUT_OF_SCOPE
from turnwise.assist.labelling.grouping import NONE, LabellingError
from turnwise.assist.map.utterance_map import UtteranceMap

#: The columns of the table; `turnwise intents fit` reads the first two.
COLUMNS = ("text", "intent", "group", "confirmed", "count", "dialogue", "turn", "speaker")

#: Utterances by which an encoder is told from another one, and how alike their vectors are up to rounding.
_PROBED, _ALIKE = 8, 0.999

#: Tokens of a text: more than any encoder reads, as maps are made of whole texts.
_WHOLE = 1_000_000


def as_csv(
    labelled: UtteranceMap,
    labels: Sequence[str | None],
    groups: npt.NDArray[np.int32],
    confirmed: npt.NDArray[np.bool_],
) -> str:
    """The labels as CSV: a line an utterance; where it has no label or is in no group, that is empty.

    Args:
        labelled: the map.
        labels: of its rows.
        groups: of its rows.
        confirmed: the rows that a person has labelled by themselves.
    """
    file = io.StringIO()
    file.write("\ufeff")  # without a byte order mark spreadsheets take the texts for some other encoding
    writer = csv.writer(file)
    writer.writerow(COLUMNS)
    for said, label, group, sure in zip(labelled.utterances, labels, groups.tolist(), confirmed.tolist(), strict=True):
        where = None if group == NONE else group
        writer.writerow(
            [said.text, label, where, "yes" if sure else "no", said.count, said.dialogue, said.turn, said.speaker]
        )
    return file.getvalue()


def fitted(
    labelled: UtteranceMap, labels: Sequence[str | None], encoder: Any, settings: dict[str, Any]
) -> IntentClassifier:
    """A classifier fitted on the utterances that have a label; those labelled 'out_of_scope' show what to abstain from.

    Where the encoder is the map's, the map's vectors are taken, and nothing is encoded.

    Args:
        labelled: the map.
        labels: of its rows.
        encoder: as `IntentClassifier` takes it; None: the model that the map was made with.
        settings: others of `IntentClassifier`'s.

    Raises:
        LabellingError: if no utterance is labelled with an intent, or the encoder is not known.
        IntentError: if the labels are too few to fit on.
    """
    rows = [row for row, label in enumerate(labels) if label is not None]
    if all(labels[row] == OUT_OF_SCOPE for row in rows):
        raise LabellingError("no utterance of the map has an intent for its label yet: name a group first")
    encoder = encoder or labelled.model
    if not encoder:
        raise LabellingError("the map does not say which encoder it was made with: give that one")
    texts, intents = [labelled.utterances[row].text for row in rows], [str(labels[row]) for row in rows]
    if settings.get("tuning") is None and settings.get("max_length") is None and _is_of(labelled, encoder):
        return IntentClassifier(encoder, **settings | {"max_length": _WHOLE}).fit(
            texts, intents, vectors=labelled.vectors[rows]
        )
    return IntentClassifier(encoder, **settings).fit(texts, intents)


def _is_of(labelled: UtteranceMap, encoder: Any) -> bool:
    """Whether an encoder is the one that a map was made with."""
    if isinstance(encoder, str | Path):
        return str(encoder) == labelled.model
    rows = np.unique(np.linspace(0, len(labelled) - 1, _PROBED).astype(int))
    anew = encoder.encode([labelled.utterances[row].text for row in rows], normalise=True)
    known = labelled.vectors[rows]
    return bool(anew.shape == known.shape and ((anew * known).sum(1) >= _ALIKE).all())
