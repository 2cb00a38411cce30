"""Loading a backbone: BERT and MPNet by turnwise's own code, others by transformers; devices and modes."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import torch
from safetensors import SafetensorError
from torch import nn

from turnwise.core.errors import ModelError, first_line
from turnwise.core.imports import without_garbage_collection
from turnwise.models.backbone.backbone import Backbone
from turnwise.models.backbone.bert import BertBackbone
from turnwise.models.backbone.mpnet import MpnetBackbone
from turnwise.models.backbone.source import check_model_folder

Model = TypeVar("Model", bound=nn.Module)


def load_backbone(folder: str | Path) -> Backbone:
    """Load the backbone in a model's folder in single precision; weights are read from safetensors."""
    folder = Path(folder)
    try:
        check_model_folder(folder)
        for own in (BertBackbone, MpnetBackbone):
            if own.supports(folder):
                return own.load(folder)
        with without_garbage_collection():
            from turnwise.models.backbone.transformers_backbone import TransformersBackbone
        return TransformersBackbone.load(folder)
    except (OSError, ValueError, SafetensorError) as error:
        raise ModelError(f"cannot load the model {str(folder)!r}: {first_line(error)}") from error


def choose_device(device: str | torch.device | None) -> torch.device:
    """Return the device to run on; None: a GPU if there is one."""
    chosen = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    if chosen.type == "cuda" and not torch.cuda.is_available():
        raise ModelError(f"the device {chosen} cannot be used: PyTorch finds no CUDA GPU; leave it out for the CPU")
    return chosen


def place(model: Model, backbone: Backbone, device: torch.device) -> Model:
    """Move a model to a device, for encoding; a CPU reads the weights of the backbone faster if stored column-major."""
    if device.type == "cpu":
        for layer in backbone.model.modules():
            if isinstance(layer, nn.Linear):
                layer.weight.data = layer.weight.data.t().contiguous().t()
    return model.to(device).eval()


@contextmanager
def evaluation_mode(module: nn.Module) -> Iterator[None]:
    """Switch training behaviour such as dropout off for a while."""
    was_training = module.training
    module.eval()
    try:
        yield
    finally:
        module.train(was_training)
