"""Speed of re-ranking, compared with sentence-transformers' `CrossEncoder` with the same weights.

`python benchmarks/reranking.py [--data DATA] [--contexts 20] [--model minilm]`
"""

import json
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import typer

from turnwise.cli.benchmarks.common import PEER, best_times, require_peer
from turnwise.corpus.synthetic.sample import RESPONSE_DIALOGUES, sample_dialogues
from turnwise.evaluation.datasets.candidates import CANDIDATE_DATASETS, candidates_from_store
from turnwise.models.backbone.inputs import END_OF_TURN
from turnwise.models.backbone.load import load_backbone
from turnwise.models.backbone.source import locate_model
from turnwise.models.reranker import Reranker, pair_text
from turnwise.version import describe_environment


def rerank_benchmark(data: Path | None, contexts: int, repeats: int = 3, model: str = "minilm") -> dict[str, Any]:
    """Score ten candidates per context, all contexts in one call and one context per call, with the same weights.

    Both load a backbone with a random head: training does not change the speed.
    """
    require_peer()
    from sentence_transformers import CrossEncoder

    dataset, requests = _read_requests(data, contexts)
    with tempfile.TemporaryDirectory() as temporary:
        with torch.random.fork_rng():
            torch.manual_seed(0)
            backbone = load_backbone(locate_model(model))
            backbone.add_tokens((END_OF_TURN,))
            Reranker(backbone, {"selection": torch.nn.Linear(backbone.hidden, 1)}).save(Path(temporary))
        reranker = Reranker.load(temporary)
        device = str(reranker.backbone.device)
        peer = CrossEncoder(temporary, device=device)
    pairs = [[pair_text(context, candidate) for candidate in candidates] for context, candidates in requests]
    all_pairs = [pair for each in pairs for pair in each]
    functions: dict[str, Callable[[], list[Any]]] = {
        "turnwise": lambda: reranker.score_all(requests),
        PEER: lambda: [peer.predict(all_pairs)],
        "turnwise_by_context": lambda: [reranker.score(context, candidates) for context, candidates in requests],
        "sentence_transformers_by_context": lambda: [peer.predict(each) for each in pairs],
    }
    scores: dict[str, npt.NDArray[np.float64]] = {}
    for name, function in functions.items():  # also the warm-up
        scores[name] = np.concatenate(function())
    best = best_times(functions, repeats)
    reference = scores[PEER]
    return {
        **{f"{name}_candidates_per_second": len(all_pairs) / seconds for name, seconds in best.items()},
        "ratio": best[PEER] / best["turnwise"],
        "ratio_by_context": best["sentence_transformers_by_context"] / best["turnwise_by_context"],
        "max_difference": max(float(np.abs(each - reference).max()) for each in scores.values()),
        "dataset": dataset,
        "contexts": len(requests),
        "candidates": len(all_pairs),
        "tokens_per_candidate": sum(len(each.tokens) for each in reranker.build_inputs(requests)) / len(all_pairs),
        "repeats": repeats,
        "model": model,
        "device": device,
        "environment": describe_environment("sentence-transformers", "torch", "transformers"),
    }


def _read_requests(data: Path | None, contexts: int) -> tuple[str, list[tuple[tuple[str, ...], tuple[str, ...]]]]:
    """Return the name of a data set and contexts with ten candidates each."""
    ubuntu = CANDIDATE_DATASETS["ubuntu_v2_slice"]
    if data is not None and ubuntu.is_present(data):
        name, examples = ubuntu.name, ubuntu.load(data).test
    else:
        # all in one split: a small test split would not have enough wrong responses to sample from
        dialogues = [
            replace(dialogue, split="test") for dialogue in sample_dialogues(max(contexts, RESPONSE_DIALOGUES), 1)
        ]
        name, examples = "sample", candidates_from_store(dialogues, "sample").test
    return name, [(example.context, example.responses) for example in examples[:contexts]]


def main(data: Path | None = None, contexts: int = 20, repeats: int = 3, model: str = "minilm") -> None:
    """Print the result; `data` holds ubuntu_v2_slices, otherwise the sample corpus is used."""
    typer.echo(json.dumps(rerank_benchmark(data, contexts, repeats, model), indent=2))


if __name__ == "__main__":
    typer.run(main)
