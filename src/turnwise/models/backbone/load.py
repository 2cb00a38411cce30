"""Loading a backbone: BERT by turnwise's own code, every other architecture by transformers."""

from pathlib import Path

from safetensors import SafetensorError

from turnwise.core.errors import ModelError, first_line
from turnwise.core.imports import without_garbage_collection
from turnwise.models.backbone.backbone import Backbone
from turnwise.models.backbone.bert import BertBackbone
from turnwise.models.backbone.source import check_model_folder, locate_model


def load_backbone(name: str | Path) -> Backbone:
    """Load a packaged model, a folder, or a Hugging Face id, in single precision; weights are read from safetensors.

    The offline variables of transformers (`HF_HUB_OFFLINE=1`) are honoured.
    """
    folder = locate_model(name)
    check_model_folder(folder)
    try:
        if BertBackbone.supports(folder):
            return BertBackbone.load(folder, str(name))
        with without_garbage_collection():
            from turnwise.models.backbone.transformers_backbone import TransformersBackbone
        return TransformersBackbone.load(folder, str(name))
    except (OSError, ValueError, SafetensorError) as error:
        raise ModelError(f"cannot load the model {str(name)!r}: {first_line(error)}") from error
