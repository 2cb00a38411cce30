"""Other few-shot classifiers on the examples and names of `intents_from_names.py`: SetFit, FastFit and AutoIntent.

    python benchmarks/other_classifiers.py METHOD DATA OUT [--split test] [--seeds 3] [--processes 8] [--device cuda]

appends to OUT/SPLIT.jsonl, which `intents_from_names.py --report` reads. All start from `turnwise-small`. Methods
cannot share an environment: FastFit 1.2.1 needs datasets < 3 and transformers < 4.47, AutoIntent datasets < 5.
"""

import argparse
import json
import tempfile
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import torch
from rich import print as show

from turnwise.assist.intents.examples import describe_intent
from turnwise.cli.benchmarks.labelling import sample_examples, split_data
from turnwise.evaluation.datasets.intents import load_intents
from turnwise.models.backbone.source import locate_model

SHOTS = (0, 1, 2, 5, 10)


def train_setfit(
    texts: list[str],
    intents: list[str],
    names: dict[str, str],
    test: list[str],
    seed: int,
    device: str,
    with_names: bool,
) -> list[str]:
    """Return SetFit's predictions, with the pairs per example of its paper; a name is one more example."""
    from datasets import Dataset
    from setfit import SetFitModel, Trainer, TrainingArguments

    if with_names:
        texts, intents = [*texts, *names.values()], [*intents, *names]
    model = SetFitModel.from_pretrained(str(locate_model("turnwise-small")), device=device)
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            folder, batch_size=16, num_epochs=1, num_iterations=20, seed=seed,
            save_strategy="no", logging_strategy="no", report_to="none", show_progress_bar=False,
        )  # fmt: skip
        Trainer(model=model, args=arguments, train_dataset=Dataset.from_dict({"text": texts, "label": intents})).train()
    return model.model_head.predict(model.model_body.encode(test, batch_size=256, show_progress_bar=False)).tolist()


def train_fastfit(
    texts: list[str], intents: list[str], names: dict[str, str], test: list[str], seed: int, device: str
) -> list[str]:
    """Return FastFit's predictions, with the settings of its documentation; it always reads the names."""
    import datasets

    # Removed from `datasets`; FastFit calls it for a metric that is not used here.
    datasets.load_metric = lambda *_, **__: None
    from fastfit import FastFitTrainer
    from transformers import AutoTokenizer

    labelled = datasets.Dataset.from_dict({"text": texts, "label": [names[intent] for intent in intents]})
    with tempfile.TemporaryDirectory() as folder:
        trainer = FastFitTrainer(
            model_name_or_path=str(locate_model("turnwise-small")), label_column_name="label", text_column_name="text",
            num_train_epochs=40, per_device_train_batch_size=32, max_text_length=128, dataloader_drop_last=False,
            num_repeats=4, optim="adafactor", clf_loss_factor=0.1, fp16=device == "cuda", seed=seed, report_to="none",
            train_dataset=labelled, test_dataset=labelled, output_dir=folder, save_strategy="no", disable_tqdm=True,
        )  # fmt: skip
        model = trainer.train().to(device).eval()
    tokenizer = AutoTokenizer.from_pretrained(str(locate_model("turnwise-small")))
    by_name = {name: intent for intent, name in names.items()}
    predictions: list[str] = []
    for start in range(0, len(test), 256):
        part = test[start : start + 256]
        batch = tokenizer(part, padding=True, truncation=True, max_length=128, return_tensors="pt")
        with torch.no_grad():
            scores = model.inference_forward(batch["input_ids"].to(device), batch["attention_mask"].to(device))
        predictions += [by_name[trainer.labels[row]] for row in scores.argmax(1).tolist()]
    return predictions


def train_autointent(
    texts: list[str], intents: list[str], names: dict[str, str], test: list[str], seed: int, device: str
) -> list[str]:
    """Return AutoIntent's predictions: without examples its scorer of descriptions, otherwise its light preset."""
    from autointent import Dataset, Pipeline
    from autointent.configs import LoggingConfig, SentenceTransformerEmbeddingConfig
    from autointent.modules.scoring import BiEncoderDescriptionScorer

    ids = list(names)
    embedder = SentenceTransformerEmbeddingConfig(
        model_name=str(locate_model("turnwise-small")), device=device, use_cache=False
    )
    if not texts:
        scorer = BiEncoderDescriptionScorer(embedder)
        scorer.fit([], [], list(names.values()))
        return [ids[row] for row in scorer.predict(test).argmax(1)]
    labelled = [{"utterance": text, "label": ids.index(intent)} for text, intent in zip(texts, intents, strict=True)]
    described = [{"id": row, "name": intent, "description": names[intent]} for row, intent in enumerate(ids)]
    pipeline = Pipeline.from_preset("classic-light", 1 + seed)
    pipeline.set_config(embedder)
    with tempfile.TemporaryDirectory() as folder:
        pipeline.set_config(LoggingConfig(project_dir=folder))
        pipeline.fit(Dataset.from_dict({"train": labelled, "intents": described}), refit_after=True)
    scores = pipeline.nodes["scoring"].module.predict(test)
    return [ids[row] for row in np.asarray(scores).argmax(1)]


METHODS = {
    "SetFit": partial(train_setfit, with_names=False),
    "SetFit + names": partial(train_setfit, with_names=True),
    "FastFit": train_fastfit,
    "AutoIntent": train_autointent,
}

#: How many examples per intent a method needs at least.
FEWEST = {"SetFit": 1, "SetFit + names": 0, "FastFit": 1, "AutoIntent": 0}


def run_sample(options: argparse.Namespace, name: str, shots: int, seed: int) -> None:
    """Evaluate the method on one sample of examples, and append its accuracy."""
    torch.set_num_threads(1)
    train, test = split_data(load_intents(name, options.data), options.split)
    intents = [each.intent for each in train]
    names = {intent: describe_intent(intent) or intent for intent in sorted(set(intents))}
    rows = sample_examples(intents, shots, seed)
    predicted = METHODS[options.method](
        [train[row].text for row in rows], [intents[row] for row in rows], names, [each.text for each in test],
        seed=seed, device=options.device,
    )  # fmt: skip
    accuracy = 100 * float(np.mean([each.intent == label for each, label in zip(test, predicted, strict=True)]))
    with (options.out / f"{options.split}.jsonl").open("a") as file:
        file.write(json.dumps({"key": [name, shots, seed, options.method], "accuracy": accuracy}) + "\n")


def main() -> None:
    """Run a method on all samples that have no result yet, the largest first."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("method", choices=METHODS)
    parser.add_argument("data", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--split", choices=("valid", "test"), default="test")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--sets", nargs="*", default=["clinc150", "banking77", "hwu64", "snips"])
    parser.add_argument("--shots", type=int, nargs="*", default=SHOTS)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / f"{options.split}.jsonl"
    done = [json.loads(line)["key"] for line in path.read_text().splitlines()] if path.exists() else []
    cells = [
        (name, shots, seed)
        for seed in range(options.seeds)
        for shots in sorted(options.shots, reverse=True)
        for name in options.sets
        if [name, shots, seed, options.method] not in done and shots >= FEWEST[options.method]
    ]
    with ProcessPoolExecutor(options.processes, get_context("spawn"), max_tasks_per_child=1) as pool:
        jobs = {pool.submit(run_sample, options, *cell): cell for cell in cells}
        for job in as_completed(jobs):
            show(*jobs[job], job.exception() or "", flush=True)


if __name__ == "__main__":
    main()
