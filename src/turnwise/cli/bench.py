"""`turnwise bench`: speed compared with peers, and the effort of labelling."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from typer import Argument, Option

from turnwise.cli.help import command_group
from turnwise.cli.options import AsJson, Datasets, Model, Overrides
from turnwise.cli.output import facts, progress_bar, show

bench_app = command_group("Measure speed against other libraries, and labelling effort.")

Repeats = Annotated[int, Option(help="Number of rounds; the best one is reported.", min=1)]
SchemaGuided = Annotated[
    Path | None, Option("--data", envvar="TURNWISE_DATA", help="Folder with schema_guided_dialogue.")
]


@bench_app.command("train")
def bench_train(
    data: SchemaGuided = None,
    steps: Annotated[int, Option(help="Optimiser steps of each trainer.", min=1)] = 8,
    batch_size: Annotated[int, Option(help="Pairs per step.", min=2)] = 128,
    max_length: Annotated[int, Option(help="Tokens per text.", min=8)] = 64,
    model: Model = "minilm",
    shape: Annotated[str | None, Option(help="Random weights of this shape: bert-base or minilm.")] = None,
    corpus: Annotated[Path | None, Option(help="Store to take pairs from instead of Schema-Guided.")] = None,
    settings: Overrides = None,
    as_json: AsJson = False,
) -> None:
    """Train on pairs, compared with sentence-transformers' trainer.

    Uses a GPU if there is one.
    """
    from turnwise.cli.benchmarks.training import train_benchmark

    result = train_benchmark(
        data, steps, batch_size, max_length, model=model, shape=shape, corpus=corpus, overrides=tuple(settings or ())
    )
    rows = _rows(result, "pairs", "", "_", "ratio") + _rows(
        result, "pairs", ", steady state", "_steady_", "steady_ratio"
    )
    rows.append(("padding avoided", f"{result['padding_avoided']:.0%}"))
    show(result, facts("Training", rows), as_json=as_json)


def _rows(result: Mapping[str, Any], unit: str, title: str, key: str, ratio: str) -> list[tuple[str, str]]:
    """Return the rates of both sides and their ratio."""
    peer, ours = (result[f"{name}{key}{unit}_per_second"] for name in ("sentence_transformers", "turnwise"))
    return [
        (f"sentence-transformers{title}", f"{peer:.1f} {unit}/s"),
        (f"turnwise{title}", f"{ours:.1f} {unit}/s"),
        (f"ratio{title}", f"{result[ratio]:.2f}"),
    ]


@bench_app.command("encode")
def bench_encode(
    data: SchemaGuided = None,
    texts: Annotated[int, Option(help="Number of texts.", min=3)] = 512,
    repeats: Repeats = 3,
    model: Model = "minilm",
    also: Annotated[list[str] | None, Option(metavar="MODEL", help="Also this exported model; repeatable.")] = None,
    as_json: AsJson = False,
) -> None:
    """Encode texts, compared with sentence-transformers.

    Measures PyTorch (on a GPU also in half precision), ONNX (32 and 8 bits; also with OpenVINO if it is installed) and
    a static table. Without --data, the texts come from the sample corpus.
    """
    from turnwise.cli.benchmarks.encoding import encode_benchmark

    result = encode_benchmark(data, texts, repeats, model, also or ())
    rows = []
    for tier in result["tiers"]:
        rows.append((tier["tier"], f"{tier['texts_per_second']:,.1f} texts/s, ratio {tier['ratio']:.2f}"))
        if tier["cosine_mean"] is not None:
            cosines = f"{tier['cosine_mean']:.5f}, lowest {tier['cosine_lowest']:.5f}"
            rows.append(("  cosine", f"{cosines}, largest difference {tier['max_difference']:.1e}"))
        rows.append(("  rank correlation", f"{tier['rank_correlation']:.4f}"))
    rows += [(f"skipped: {tier}", reason) for tier, reason in result["skipped"].items()]
    rows += [("tokens per text", f"{result['tokens_per_text']:.1f}"), ("threads", str(result["threads"]))]
    title = f"Encoding {result['texts']:,} texts of {result['dataset']} on {result['device']}"
    show(result, facts(title, rows), as_json=as_json)


@bench_app.command("serve")
def bench_serve(
    model: Model = "minilm",
    clients: Annotated[list[int] | None, Option(metavar="INT", help="Clients; by default 1, 8 and 64.", min=1)] = None,
    seconds: Annotated[int, Option(help="Duration of each measurement.", min=1)] = 10,
    repeats: Repeats = 3,
    also: Annotated[list[str] | None, Option(metavar="MODEL", help="Also serve this model; repeatable.")] = None,
    as_json: AsJson = False,
) -> None:
    """Measure the service under load, compared with a plain handler.

    The handler is a FastAPI function that calls sentence-transformers. Needs wrk.
    """
    from turnwise.cli.benchmarks.serving import serve_benchmark

    result = serve_benchmark(model, clients or (1, 8, 64), seconds, repeats, also or ())
    rows = []
    for load in result["loads"]:
        latency = f"median {load['median_milliseconds']:.1f} ms, p99 {load['p99_milliseconds']:.1f} ms"
        failed = f", {load['failed']:,} failed" if load["failed"] else ""
        rate = f"{load['requests_per_second']:.1f} requests/s"
        rows.append((f"{load['server']}, {load['clients']} clients", f"{rate}, {latency}{failed}"))
    rows += [(f"ratio, {count} clients", f"{ratio:.2f}") for count, ratio in result["ratios"].items()]
    rows.append(("largest difference of a number", f"{result['max_difference']:.1e}"))
    show(result, facts("Serving", rows), as_json=as_json)


@bench_app.command("labelling")
def bench_labelling(
    data: Annotated[Path, Argument(help="Folder of data sets.", envvar="TURNWISE_DATA")],
    out: Annotated[Path, Option(file_okay=False, help="Folder for results and plots; results in it are kept.")],
    split: Annotated[Literal["valid", "test"], Option(help="Split to evaluate on.")] = "valid",
    seeds: Annotated[int, Option(min=1, help="Number of random seeds.")] = 1,
    datasets: Datasets = None,
    as_json: AsJson = False,
) -> None:
    """Measure accuracy by the number of actions of a person who labels.

    Compares labelling random texts, uncertain texts, and answering the questions of the map page, with turnwise-small.
    An interrupted command continues. Needs banking77, clinc150 and hwu64.
    """
    from turnwise.cli.benchmarks.labelling import DATASETS, labelling_benchmark
    from turnwise.models.encoder import Encoder

    out.mkdir(parents=True, exist_ok=True)
    with progress_bar() as progress:
        encoder = Encoder.load("turnwise-small")
        result = labelling_benchmark(data, out, encoder, split, seeds, datasets or DATASETS, progress)
    blocks = []
    for name, each in result.items():
        steps = "  ".join(f"{step:>5,}" for step, _ in each["accuracy"]["random"])
        curves = {
            method: "  ".join(f"{value:5.1f}" for _, value in curve) for method, curve in each["accuracy"].items()
        }
        rows = [("actions", steps), *curves.items(), ("5 random per intent", f"{each['reference']:.1f}")]
        blocks.append(facts(f"{name}, {each['intents']:,} intents", rows))
    show(result, *blocks, as_json=as_json)
