"""Weight averaging ("model soups"): the models between two others of the same architecture.

Training gains on some tasks and loses on others. Between the weights before and after training, the gains may be kept
and the losses regained (Wortsman et al., 2022, 'Robust fine-tuning of zero-shot models' and 'Model soups').
"""

import copy
import json
from typing import Any, TypeVar

import torch

from turnwise.core.errors import ModelError
from turnwise.corpus.training_data import TrainingData
from turnwise.models.identity import tokenizer_definition
from turnwise.models.reranker import Reranker
from turnwise.models.trainable_encoder import TrainableEncoder

#: Keys of a configuration that do not change the vectors of given weights.
_KEYS_WITHOUT_EFFECT = {
    *("_name_or_path", "architectures", "transformers_version", "dtype", "torch_dtype", "initializer_range"),
    *("use_cache", "id2label", "label2id", "problem_type", "finetuning_task", "gradient_checkpointing"),
}


#: Two encoders, or two re-rankers.
AnyModel = TypeVar("AnyModel", bound=TrainableEncoder | Reranker)


def average_weights(first: AnyModel, second: AnyModel, ratio: float) -> AnyModel:
    """Return the model whose weights are (1 - ratio) · first + ratio · second, computed in float32.

    At the ratios 0 and 1 it is one of the two, bit for bit. The two models stay unchanged. The maximum length of the
    result is the smaller one of the two.
    """
    check_ratio(ratio)
    check_same_architecture(first, second)
    average = copy.deepcopy(second if ratio == 1 else first)
    if 0 < ratio < 1:
        average.float()
        first_weights, second_weights = first.state_dict(), second.state_dict()
        with torch.no_grad():
            for name, value in average.state_dict().items():
                if value.is_floating_point():
                    # from the two sources, not in place: a weight with two names is written twice
                    other = second_weights[name].float().to(value.device)
                    value.copy_((1 - ratio) * first_weights[name].float() + ratio * other)
    average.training_data = TrainingData.union([first.training_data, second.training_data])
    average.max_length = min(first.max_length, second.max_length)
    average.eval()
    return average


def check_ratio(ratio: float) -> None:
    """Raise a ModelError unless the ratio is from 0 to 1 (NaN is not)."""
    if not 0 <= ratio <= 1:
        raise ModelError(f"the ratio must be between 0 (the first model) and 1 (the second model), got {ratio:g}")


def check_same_architecture(first: TrainableEncoder | Reranker, second: TrainableEncoder | Reranker) -> None:
    """Raise a ModelError if two models differ in more than their weights and their maximum length."""
    if isinstance(first, TrainableEncoder) != isinstance(second, TrainableEncoder):
        raise ModelError("an encoder and a re-ranker cannot be averaged: give two of a kind")
    ours, theirs = _settings(first), _settings(second)
    different = [name for name in sorted(ours.keys() | theirs.keys()) if ours.get(name) != theirs.get(name)]
    if different:
        more = f" and {len(different) - 5} more" if len(different) > 5 else ""
        raise ModelError(
            "the two models cannot be averaged; they differ in more than their weights: "
            f"{', '.join(different[:5])}{more}"
        )


def _settings(model: TrainableEncoder | Reranker) -> dict[str, Any]:
    """Return all that two models must share, by name; of weights the shapes, of integer buffers the values."""
    names = ("window",) if isinstance(model, Reranker) else ("pooling", "style", "normalise")
    settings = {name: getattr(model, name) for name in names}
    settings["special tokens"] = model.backbone.tokenizer.special_tokens_map
    tokenizer = tokenizer_definition(model.backbone.tokenizer)
    settings |= {f"{name} of the tokenizer": value for name, value in tokenizer.items()}
    config = json.loads(model.backbone.configuration())
    settings |= {key: value for key, value in config.items() if key not in _KEYS_WITHOUT_EFFECT and "drop" not in key}
    for name, value in model.state_dict().items():
        settings[name] = value.shape if value.is_floating_point() else value.tolist()
    return settings
