"""Benchmarks: turnwise beside what people use today, in one run, as ratios."""

import contextlib
import json
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from turnwise.corpus.importing import import_corpus
from turnwise.corpus.sample import sample_dialogues
from turnwise.corpus.sample_folder import RESPONSE_DIALOGUES
from turnwise.corpus.store import Store, StoreWriter, read_corpus
from turnwise.dialogue import Dialogue
from turnwise.environment import environment
from turnwise.errors import TurnwiseError
from turnwise.progress import Progress, silent

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from turnwise.encoder import Encoder

_NO_PEER = "the peer is not installed: pip install 'turnwise[compare]'"


def _seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def _schema_guided(data: Path | None) -> Path:
    folder = data / "schema_guided_dialogue" if data else None
    if folder is None or not folder.is_dir():
        where = f"{folder} is not there" if folder else "no data folder was named"
        raise TurnwiseError(
            f"{where}: fetch the corpus (turnwise corpus fetch schema_guided_dialogue --out DIR/schema_guided_dialogue),"
            " then name DIR by --data or the environment variable TURNWISE_DATA"
        )
    return folder


def import_benchmark(data: Path | None, repeats: int, progress: Progress = silent) -> dict[str, Any]:
    """Importing Schema-Guided into a store, beside `json.load` alone over the same files; the best of several runs each."""
    folder = _schema_guided(data)
    files = sorted(folder.rglob("dialogues_*.json"))

    def load() -> None:
        for path in files:
            with path.open(encoding="utf-8") as file:
                json.load(file)

    loads, imports = [], []
    with tempfile.TemporaryDirectory() as temporary:
        for repeat in range(repeats):  # in turn, so that what else the machine does falls on both
            progress("rounds", repeat, repeats)
            loads.append(_seconds(load))
            imports.append(_seconds(lambda: import_corpus(folder.name, folder, Path(temporary) / "store")))
    return {
        "json_load_seconds": min(loads),
        "import_seconds": min(imports),
        "ratio": min(imports) / min(loads),
        "repeats": repeats,
        "environment": environment(),
    }


def train_benchmark(data: Path | None, steps: int, batch_size: int, max_length: int, progress: Progress = silent) -> dict[str, Any]:
    """Training on pairs of Schema-Guided, beside sentence-transformers' trainer with its in-batch-negatives loss.

    The same backbone (`minilm`), the same pairs, the same batch size and maximum length, in one run. Ours is timed with all it
    does: loading, tokenising, checkpoint and saving; theirs from the trainer's start to its end, with nothing saved.
    """
    # imported here: other benchmarks need neither torch nor the peer
    from turnwise.training.loop import train
    from turnwise.training.recipe import load_recipe

    folder = _schema_guided(data)
    with tempfile.TemporaryDirectory() as temporary:
        place = Path(temporary)
        progress("importing", 0, 3)
        pairs = _pairs(import_corpus(folder.name, folder, place / "whole"), steps * batch_size, place / "pairs")
        recipe = load_recipe(
            "dse",
            [f"steps={steps}", f"batch_size={batch_size}", f"max_length={max_length}", "attention_dropout=null", "log_every=1"],
        )
        progress("turnwise", 1, 3)
        ours = _seconds(lambda: train(recipe, read_corpus(place / "pairs"), place / "model"))
        lines = [json.loads(line) for line in (place / "model" / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
        progress("sentence-transformers", 2, 3)
        theirs = _peer_seconds(pairs, batch_size, max_length, place / "peer")
    count = steps * batch_size
    return {
        "turnwise_pairs_per_second": count / ours,
        "sentence_transformers_pairs_per_second": count / theirs,
        "ratio": theirs / ours,
        "padding_avoided": sum(line["padding_avoided"] for line in lines) / len(lines),
        "pairs": count,
        "batch_size": batch_size,
        "max_length": max_length,
        "environment": environment(),
    }


def _pairs(store: Store, count: int, out: Path) -> list[tuple[str, str]]:
    """The first pairs that DSE takes, as texts and as a store of dialogues of two turns."""
    from turnwise.objectives.dse import DSE

    pairs: list[tuple[str, str]] = []
    with StoreWriter(out) as writer:
        for dialogue in store:
            for example in DSE().examples(dialogue):
                (first, _), (second, _) = example.windows
                writer.write(Dialogue(str(len(pairs)), dialogue.turns[first : second + 1]))
                pairs.append((dialogue.turns[first].text, dialogue.turns[second].text))
                if len(pairs) == count:
                    writer.commit({})
                    return pairs
    raise TurnwiseError(f"Schema-Guided gives {len(pairs)} pairs, {count} are wanted: take fewer steps")


def _peer_seconds(pairs: list[tuple[str, str]], batch_size: int, max_length: int, out: Path) -> float:
    try:
        from datasets import Dataset
        from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer, SentenceTransformerTrainingArguments
        from sentence_transformers.losses import MultipleNegativesRankingLoss
    except ImportError:
        raise TurnwiseError(_NO_PEER) from None
    from turnwise.backbone.source import locate

    model = SentenceTransformer(str(locate("minilm")), device="cpu")
    model.max_seq_length = max_length
    arguments = SentenceTransformerTrainingArguments(
        output_dir=str(out),
        num_train_epochs=1,
        per_device_train_batch_size=batch_size,
        save_strategy="no",
        logging_strategy="no",
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
    )
    trainer = SentenceTransformerTrainer(
        model=model,
        args=arguments,
        train_dataset=Dataset.from_dict({"anchor": [first for first, _ in pairs], "positive": [second for _, second in pairs]}),
        loss=MultipleNegativesRankingLoss(model),
    )
    with contextlib.redirect_stdout(sys.stderr):  # the trainer prints its figures where ours are read from
        return _seconds(trainer.train)


def evaluate_benchmark(
    data: Path, model: str = "minilm", datasets: Sequence[str] = (), progress: Progress = silent
) -> dict[str, Any]:
    """The DSE suite without fine-tuning, beside encoding the very same inputs once with sentence-transformers.

    Both with the same weights, on the same device, in one run. Ours is timed with all it does: reading the data, encoding, figures,
    intervals, tables and pictures; theirs are the calls of `encode` alone, with its defaults but for the tokens of an input, which
    are cut where ours are: a call for each such length. Both models are loaded and have encoded something before. Ours comes first,
    because what it encodes is what theirs is given; what the machine does slowly for the first time falls on ours.

    Args:
        data: a folder of data sets, or a sample world.
        model: 'minilm', a model folder or a Hugging Face id.
        datasets: these alone; none: all that are there.
        progress: told which of the two is at work.

    Raises:
        TurnwiseError: if there is nothing to measure on, or the peer is not installed.
    """
    # imported here: other benchmarks need neither torch nor the peer
    from turnwise.backbone.source import locate
    from turnwise.encoder import Encoder
    from turnwise.evaluation.evaluating import evaluate
    from turnwise.evaluation.judged import SentenceTransformerEncoder, judged

    try:
        from sentence_transformers import SentenceTransformer
    except ImportError:
        raise TurnwiseError(_NO_PEER) from None
    encoder = Encoder.load(model)
    device = str(encoder.backbone.device)
    peer = SentenceTransformerEncoder(SentenceTransformer(str(locate(model)), device=device))
    for each in (encoder, peer):
        each.encode(["Hello there.", "Is the table by the window still free tonight?"])
    recorder = _Recorder(encoder)
    progress("turnwise", 0, 2)
    ours = _seconds(
        lambda: evaluate(replace(judged(encoder, model), encoder=recorder), data, suite="dse", datasets=datasets, fine_tuning=False)
    )
    progress("sentence-transformers", 1, 2)
    theirs = _seconds(lambda: [peer.encode(inputs, max_length=longest) for longest, inputs in recorder.inputs.items()])
    return {
        "evaluate_seconds": ours,
        "encoding_seconds": recorder.seconds,
        "sentence_transformers_seconds": theirs,
        "ratio": theirs / ours,
        "texts": sum(map(len, recorder.inputs.values())),
        "model": model,
        "datasets": list(datasets),
        "device": device,
        "environment": environment(),
    }


class _Recorder:
    """An encoder that remembers what it encoded, by the length that inputs were cut to, and how long that took."""

    def __init__(self, encoder: "Encoder"):
        self._encoder = encoder
        self.inputs: dict[int | None, list[Any]] = {}
        self.seconds = 0.0

    def encode(
        self, inputs: Sequence[Any], *, normalise: bool | None = None, max_length: int | None = None
    ) -> "npt.NDArray[np.float32]":
        """Vectors (inputs, size)."""
        self.inputs.setdefault(max_length, []).extend(inputs)
        start = time.perf_counter()
        vectors = self._encoder.encode(inputs, normalise=normalise, max_length=max_length)
        self.seconds += time.perf_counter() - start
        return vectors


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
    # imported here: other benchmarks need neither torch nor the peer
    import numpy as np

    from turnwise.reranker import Reranker, pair_text

    try:
        from sentence_transformers import CrossEncoder
    except ImportError:
        raise TurnwiseError(_NO_PEER) from None
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
    seconds: dict[str, list[float]] = {name: [] for name in works}
    scores: dict[str, npt.NDArray[np.float64]] = {}
    for name, work in works.items():  # once before anything is timed
        scores[name] = np.concatenate(work())
    for repeat in range(repeats):
        progress("rounds", repeat, repeats)
        for name, work in works.items():
            seconds[name].append(_seconds(work))
    best = {name: min(each) for name, each in seconds.items()}
    return {
        **{f"{name}_candidates_per_second": len(together) / each for name, each in best.items()},
        "ratio": best["sentence_transformers"] / best["turnwise"],
        "ratio_by_context": best["sentence_transformers_by_context"] / best["turnwise_by_context"],
        "greatest_difference": max(float(np.abs(each - scores["sentence_transformers"]).max()) for each in scores.values()),
        "dataset": dataset,
        "contexts": len(asked),
        "candidates": len(together),
        "tokens_of_a_candidate": sum(len(each.tokens) for each in ours.inputs(asked)) / len(together),
        "repeats": repeats,
        "model": model,
        "device": device,
        "environment": environment(),
    }


def _asked(data: Path | None, contexts: int) -> tuple[str, list[tuple[tuple[str, ...], tuple[str, ...]]]]:
    """The name of a data set, and contexts of it with ten candidates each."""
    from turnwise.evaluation.datasets.candidates import CANDIDATE_DATASETS, from_store

    ubuntu = CANDIDATE_DATASETS["ubuntu_v2_slice"]
    if data is not None and ubuntu.present(data):
        name, examples = ubuntu.name, ubuntu.load(data).test
    else:
        # dialogues of one split: drawn among few, wrong answers would run out
        dialogues = [replace(dialogue, split="test") for dialogue in sample_dialogues(max(contexts, RESPONSE_DIALOGUES), 1)]
        name, examples = "sample", from_store(dialogues, "sample").test
    return name, [(example.context, example.responses) for example in examples[:contexts]]


def _untrained(model: str, out: Path) -> None:
    """Writes a re-ranker whose heads are drawn with a seed."""
    import torch

    from turnwise.backbone.backbone import Backbone
    from turnwise.backbone.marked import END_OF_TURN
    from turnwise.reranker import Reranker

    with torch.random.fork_rng():
        torch.manual_seed(0)
        backbone = Backbone.load(model)
        backbone.add_tokens((END_OF_TURN,))
        Reranker(backbone, {"selection": torch.nn.Linear(backbone.hidden, 1)}).save(out)
