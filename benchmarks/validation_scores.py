"""Score encoders on validation data, to choose the settings of packaged encoders.

python benchmarks/validation_scores.py pack DATA STORES texts.json.gz
python benchmarks/validation_scores.py score texts.json.gz MODEL... [--start MODEL --fraction 0.8] [--bits 8]

`pack` collects the texts, for machines that have no room for DATA, the folder of the evaluation sets. STORES holds
`schema_guided_dialogue` and `multiwoz`. `score` prints a row per model, in percent. With --start a model is averaged
with the one that it was trained from; with --bits 8 its matrices are rounded to 8 bits per row.
"""

import argparse
import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import torch
from rich import print as show
from scipy.stats import spearmanr
from sklearn.metrics import roc_auc_score

from turnwise import Encoder, read_corpus
from turnwise.evaluation.datasets.candidates import CANDIDATE_DATASETS, QUESTION_DATASETS
from turnwise.evaluation.datasets.intents import load_intents
from turnwise.evaluation.datasets.sentence_pairs import SIMILARITY_DATASETS
from turnwise.evaluation.tasks.intents import compute_prototypes, hold_out_tenth, sample_few_shot

FEW_SHOT = ("clinc150", "banking77", "hwu64", "snips")
NEAREST = ("snips", "atis", "massive", "hwu64", "clinc150")
SIMILARITY = ("stsb", "sick")
DIALOGUES = ("schema_guided_dialogue", "multiwoz")
RESPONSES = ("dailydialog_plusplus", "dailydialog_plusplus_adversarial")
SEEDS, CANDIDATES = 10, 100


def pack(data: Path, stores: Path) -> dict[str, Any]:
    """Collect the training and validation texts; a fifth of AmazonQA, which has no splits, is validation data."""
    texts: dict[str, Any] = {"intents": {}, "similarity": {}, "next": {}, "responses": {}}
    for name in sorted({*FEW_SHOT, *NEAREST}):
        loaded = load_intents(name, data)
        train, valid = ([(each.text, each.intent) for each in split] for split in (loaded.train, loaded.valid))
        if not valid:
            rest, held_out = hold_out_tenth([intent for _, intent in train], name)
            train, valid = [train[row] for row in rest], [train[row] for row in held_out]
        texts["intents"][name] = {"train": train, "valid": valid, "other": loaded.out_of_scope.valid}
    texts["questions"] = QUESTION_DATASETS["amazonqa"].load(data).pairs[::5]
    for name in SIMILARITY:
        pairs = SIMILARITY_DATASETS[name].load(data).valid
        texts["similarity"][name] = [(pair.first, pair.second, pair.score) for pair in pairs]
    random = Random(0)
    for name in DIALOGUES:
        turns = ([turn.text for turn in each.turns] for each in read_corpus(stores / name, splits=["valid"]))
        places = [(each, random.randrange(3, len(each))) for each in turns if len(each) > 3]
        texts["next"][name] = [(each[place - 3 : place], each[place]) for each, place in places]
    for name in RESPONSES:
        examples = CANDIDATE_DATASETS[name].load(data).valid
        texts["responses"][name] = [(each.context, each.responses, each.labels) for each in examples]
    return texts


def score(encoder: Encoder, texts: dict[str, Any]) -> dict[str, float]:
    """Return the scores of an encoder in percent."""
    scores = dict(intent_scores(encoder, texts["intents"]))
    scores["AmazonQA"] = top_1(encoder, texts["questions"])
    for name, pairs in texts["similarity"].items():
        first, second = (vectors_of(encoder, [pair[side] for pair in pairs]) for side in (0, 1))
        scores[name] = 100 * float(spearmanr((first * second).sum(1), [pair[2] for pair in pairs]).statistic)
    for name, pairs in texts["next"].items():
        scores[f"next: {name.partition('_')[0]}"] = top_1(encoder, pairs)
    for name, examples in texts["responses"].items():
        contexts = vectors_of(encoder, [context for context, _, _ in examples])
        responses = vectors_of(encoder, [text for _, own, _ in examples for text in own])
        ends = np.cumsum([len(own) for _, own, _ in examples])
        best = [
            labels[int((part @ context).argmax())]
            for context, part, (_, _, labels) in zip(contexts, np.split(responses, ends[:-1]), examples, strict=True)
        ]
        scores["adversarial" if "adversarial" in name else "random"] = 100 * float(np.mean(best))
    return scores


def intent_scores(encoder: Encoder, sets: dict[str, Any]) -> Iterator[tuple[str, float]]:
    """Yield means over data sets: prototypes of one and five examples, with names, and the nearest example."""
    accuracies: dict[str, list[float]] = {"1-shot": [], "with names": [], "names": [], "5-shot": [], "1-NN": []}
    areas = []
    for name, own in sets.items():
        intents = sorted({intent for _, intent in own["train"]})
        valid = [(text, intent) for text, intent in own["valid"] if intent in intents]
        labels = [np.array([intents.index(intent) for _, intent in part]) for part in (own["train"], valid)]
        train, queries = (vectors_of(encoder, [text for text, _ in part]) for part in (own["train"], valid))
        if name in NEAREST:
            accuracies["1-NN"].append(float((labels[0][(queries @ train.T).argmax(1)] == labels[1]).mean()))
        if name not in FEW_SHOT:
            continue
        names = vectors_of(encoder, [intent.replace("_", " ") for intent in intents])
        accuracies["names"].append(float(((queries @ names.T).argmax(1) == labels[1]).mean()))
        for shots in (1, 5):
            runs, with_names = [], []
            for seed in range(SEEDS):
                support, _ = sample_few_shot([intent for _, intent in own["train"]], shots, seed)
                prototypes = compute_prototypes(train[support], labels[0][support], len(intents))
                runs.append(float(((queries @ prototypes.T).argmax(1) == labels[1]).mean()))
                both = compute_prototypes(
                    np.vstack([prototypes, names]), np.tile(np.arange(len(intents)), 2), len(intents)
                )
                with_names.append(float(((queries @ both.T).argmax(1) == labels[1]).mean()))
                if shots == 5 and own["other"]:
                    others = vectors_of(encoder, own["other"])
                    nearest = (np.vstack([queries, others]) @ prototypes.T).max(1)
                    areas.append(roc_auc_score(np.arange(len(nearest)) < len(queries), nearest))
            accuracies[f"{shots}-shot"].append(float(np.mean(runs)))
            if shots == 1:
                accuracies["with names"].append(float(np.mean(with_names)))
    yield from ((name, 100 * float(np.mean(values))) for name, values in accuracies.items())
    yield "AUROC", 100 * float(np.mean(areas))


def top_1(encoder: Encoder, pairs: list[tuple[Any, str]]) -> float:
    """Return how often the right response is first among those of a hundred consecutive pairs."""
    complete = pairs[: len(pairs) // CANDIDATES * CANDIDATES]
    first, second = (vectors_of(encoder, [pair[side] for pair in complete]) for side in (0, 1))
    groups = (slice(start, start + CANDIDATES) for start in range(0, len(complete), CANDIDATES))
    best = [(first[group] @ second[group].T).argmax(1) == np.arange(CANDIDATES) for group in groups]
    return 100 * float(np.mean(best))


def vectors_of(encoder: Encoder, texts: list[Any]) -> np.ndarray:
    """Return vectors of length 1 of texts and conversations."""
    return encoder.encode(texts, normalise=True)


def load(name: str, start: str | None, fraction: float, bits: int) -> Encoder:
    """Load an encoder, `fraction` of the way from its start, with matrices of so many bits."""
    encoder: Any = Encoder.load(name)
    with torch.no_grad():
        if start is not None:
            origin: Any = Encoder.load(start)
            for own, other in zip(encoder.parameters(), origin.parameters(), strict=True):
                own.lerp_(other.to(own.device), 1 - fraction)
        if bits < 32:
            for own in encoder.parameters():
                if own.dim() == 2:
                    scale = own.abs().amax(1, keepdim=True).clamp(min=1e-12) / (2 ** (bits - 1) - 1)
                    own.copy_((own / scale).round() * scale)
    return encoder


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    packing = commands.add_parser("pack")
    for name in ("data", "stores", "out"):
        packing.add_argument(name, type=Path)
    scoring = commands.add_parser("score")
    scoring.add_argument("texts", type=Path)
    scoring.add_argument("models", nargs="+")
    scoring.add_argument("--start")
    scoring.add_argument("--fraction", type=float, default=1.0)
    scoring.add_argument("--bits", type=int, default=32)
    options = parser.parse_args()
    if options.command == "pack":
        with gzip.open(options.out, "wt", encoding="utf-8") as file:
            json.dump(pack(options.data, options.stores), file)
        return
    with gzip.open(options.texts, "rt", encoding="utf-8") as file:
        texts = json.load(file)
    for model in options.models:
        scores = score(load(model, options.start, options.fraction, options.bits), texts)
        show(f"{model}: " + ", ".join(f"{name} {value:.2f}" for name, value in scores.items()))


if __name__ == "__main__":
    main()
