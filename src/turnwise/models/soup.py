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
    differences = [f"{name} {ours[name]!r} and {theirs[name]!r}" for name in ours if ours[name] != theirs[name]]
    added = [set(model.backbone.tokenizer.get_added_vocab()) for model in (first, second)]
    if tokens := sorted(added[0] ^ added[1]):
        differences.append(f"added tokens of only one ({', '.join(tokens[:3])}{', …' if len(tokens) > 3 else ''})")
    if parts := _differing_tokenizer_parts(first, second):
        differences.append(f"tokenizers ({', '.join(parts)})")
    if weights := _differing_weights(first, second):
        differences.append(f"{len(weights)} weights, such as {weights[0]}")
    else:
        differences += _differing_config_keys(first, second)
    if differences:
        raise ModelError(
            f"the two models cannot be averaged; they differ in more than their weights: {'; '.join(differences)}"
        )


def _settings(model: TrainableEncoder | Reranker) -> dict[str, Any]:
    """Return the settings that two models must share."""
    tokens = {"special tokens": model.backbone.tokenizer.special_tokens_map}
    if isinstance(model, Reranker):
        return {"window": model.window, **tokens}
    own = {"pooling": model.pooling, "joining turns by": model.style, "normalised vectors": model.normalise}
    return {**own, **tokens}


def _differing_tokenizer_parts(first: TrainableEncoder | Reranker, second: TrainableEncoder | Reranker) -> list[str]:
    ours, theirs = (tokenizer_definition(model.backbone.tokenizer) for model in (first, second))
    parts = [name for name in sorted(ours.keys() | theirs.keys()) if ours.get(name) != theirs.get(name)]
    return list(dict.fromkeys("vocabulary" if name in ("model", "added_tokens") else name for name in parts))


def _differing_weights(first: TrainableEncoder | Reranker, second: TrainableEncoder | Reranker) -> list[str]:
    """Return the weights that only one model has, that differ in shape, and integer buffers that differ in value."""
    ours, theirs = first.state_dict(), second.state_dict()
    differences = [f"{name}, which only one has" for name in sorted(ours.keys() ^ theirs.keys())]
    for name in sorted(ours.keys() & theirs.keys()):
        one, other = ours[name], theirs[name]
        if one.shape != other.shape:
            differences.append(f"{name} of {tuple(one.shape)} and {tuple(other.shape)}")
        elif not one.is_floating_point() and not torch.equal(one.cpu(), other.cpu()):
            differences.append(f"{name} of different integers")
    return differences


def _differing_config_keys(first: TrainableEncoder | Reranker, second: TrainableEncoder | Reranker) -> list[str]:
    """Return the configuration keys that change what equal weights compute, such as the number of attention heads."""
    ours, theirs = (json.loads(model.backbone.configuration()) for model in (first, second))
    keys = [
        key
        for key in sorted(ours.keys() | theirs.keys())
        if key not in _KEYS_WITHOUT_EFFECT and "drop" not in key and ours.get(key) != theirs.get(key)
    ]
    return [f"{key} {ours.get(key)!r} and {theirs.get(key)!r}" for key in keys]
