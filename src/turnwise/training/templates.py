"""What a run has to do with templates: how their slots are marked, and what of them stays with the model."""

from collections.abc import Mapping

import torch
from torch import nn

from turnwise.corpus.slots.template import SlotMarks, Template
from turnwise.corpus.slots.templates import expect_named_splits
from turnwise.corpus.store import Corpus
from turnwise.models.backbone.backbone import PoolerLayer
from turnwise.models.compression import Compression, project_templates
from turnwise.models.encoder import Encoder
from turnwise.objectives.objective import Objective


def slot_marks(corpus: Corpus, objectives: Mapping[str, Objective]) -> SlotMarks | None:
    """What stands for slots in the templates that objectives read; None where none reads any.

    Raises:
        CorpusError: if templates of other splits than 'train' would be read unasked.
    """
    wanted = [objective.slot_names for objective in objectives.values() if objective.slot_names is not None]
    if not wanted:
        return None
    expect_named_splits(corpus)
    return SlotMarks.of((turn for dialogue in corpus for turn in dialogue.turns), max(wanted))


def learnt_compression(encoder: Encoder, corpus: Corpus, objective: Objective, heads: nn.Module) -> Compression:
    """What it takes to draw a model's vectors towards templates: those that an objective learnt from, and the layer on them."""
    templates = dict.fromkeys(
        encoder.marks.text(Template.of(dialogue.turns[first]))
        for dialogue in corpus
        for ((first, _), *_), _ in objective.examples(dialogue)
    )
    layer = heads if isinstance(heads, PoolerLayer) else None
    vectors = torch.from_numpy(encoder.encode(list(templates), normalise=False)).to(encoder.backbone.device)
    with torch.inference_mode():
        return Compression(encoder.marks, list(templates), project_templates(vectors, layer), layer)
