"""Re-ranking, beside sentence-transformers' `CrossEncoder`."""

import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from turnwise.cli.benchmarks.shared import NO_PEER, best_seconds
from turnwise.core.errors import TurnwiseError
from turnwise.core.progress import Progress, silent
from turnwise.corpus.synthetic.sample import sample_dialogues
from turnwise.corpus.synthetic.sample_folder import RESPONSE_DIALOGUES
from turnwise.version import describe_environment

if TYPE_CHECKING:
    import numpy.typing as npt


def rerank_benchmark(
    data: Path | None, contexts: int, repeats: int = 3, model: str = "minilm", progress: Progress = silent
) -> dict[str, Any]:
    """Scoring ten candidates a context, beside sentence-transformers' `CrossEncoder` with the same weights on the same device.

    Both score all contexts in one call, theirs with its defaults, which is its best case; and, for a service that has one
    conversation at a time, both again in a call a context. In turn, the best of several rounds each. Both are loaded from one
    folder, which holds the backbone and a layer drawn at random: training makes no difference to how long it takes.

    Args:
        data: a folder that may hold Ubuntu V2's slice; without it contexts are the sample world's.
        contexts: how many, at most as many as there are.
        repeats: rounds.
        model: the backbone: 'minilm', a model folder or a Hugging Face id.
        progress: told of the rounds.

    Raises:
        TurnwiseError: if the peer is not installed.
    """
    # imported here: they take seconds
    import numpy as np

    from turnwise.models.reranker import Reranker, pair_text

    try:
        from sentence_transformers import CrossEncoder
    except ImportError:
        raise TurnwiseError(NO_PEER) from None
    dataset, asked = _asked(data, contexts)
    with tempfile.TemporaryDirectory() as temporary:
        _untrained(model, Path(temporary))
        ours = Reranker.load(temporary)
        device = str(ours.backbone.device)
        peer = CrossEncoder(temporary, device=device)
    pairs = [[pair_text(context, candidate) for candidate in candidates] for context, candidates in asked]
    together = [pair for each in pairs for pair in each]
    works: dict[str, Callable[[], list[Any]]] = {
        "turnwise": lambda: ours.score_all(asked),
        "sentence_transformers": lambda: [peer.predict(together)],
        "turnwise_by_context": lambda: [ours.score(context, candidates) for context, candidates in asked],
        "sentence_transformers_by_context": lambda: [peer.predict(each) for each in pairs],
    }
    scores: dict[str, npt.NDArray[np.float64]] = {}
    for name, work in works.items():  # once before anything is timed
        scores[name] = np.concatenate(work())
    best = best_seconds(works, repeats, progress)
    return {
        **{f"{name}_candidates_per_second": len(together) / each for name, each in best.items()},
        "ratio": best["sentence_transformers"] / best["turnwise"],
        "ratio_by_context": best["sentence_transformers_by_context"] / best["turnwise_by_context"],
        "greatest_difference": max(
            float(np.abs(each - scores["sentence_transformers"]).max()) for each in scores.values()
        ),
        "dataset": dataset,
        "contexts": len(asked),
        "candidates": len(together),
        "tokens_of_a_candidate": sum(len(each.tokens) for each in ours.build_inputs(asked)) / len(together),
        "repeats": repeats,
        "model": model,
        "device": device,
        "environment": describe_environment("sentence-transformers", "torch", "transformers"),
    }


def _asked(data: Path | None, contexts: int) -> tuple[str, list[tuple[tuple[str, ...], tuple[str, ...]]]]:
    """The name of a data set, and contexts of it with ten candidates each."""
    from turnwise.evaluation.datasets.candidates import CANDIDATE_DATASETS, from_store

    ubuntu = CANDIDATE_DATASETS["ubuntu_v2_slice"]
    if data is not None and ubuntu.present(data):
        name, examples = ubuntu.name, ubuntu.load(data).test
    else:
        # dialogues of one split: drawn among few, wrong answers would run out
        dialogues = [
            replace(dialogue, split="test") for dialogue in sample_dialogues(max(contexts, RESPONSE_DIALOGUES), 1)
        ]
        name, examples = "sample", from_store(dialogues, "sample").test
    return name, [(example.context, example.responses) for example in examples[:contexts]]


def _untrained(model: str, out: Path) -> None:
    """Writes a re-ranker whose heads are drawn with a seed."""
    import torch

    from turnwise.models.backbone.backbone import Backbone
    from turnwise.models.backbone.inputs import END_OF_TURN
    from turnwise.models.reranker import Reranker

    with torch.random.fork_rng():
        torch.manual_seed(0)
        backbone = Backbone.load(model)
        backbone.add_tokens((END_OF_TURN,))
        Reranker(backbone, {"selection": torch.nn.Linear(backbone.hidden, 1)}).save(out)
