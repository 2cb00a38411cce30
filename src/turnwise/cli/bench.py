"""`turnwise bench`: speed, beside what people use today."""

from pathlib import Path
from typing import Annotated

import typer

from turnwise.cli.options import AsJson
from turnwise.cli.output import facts, progress_bar, quiet_transformers, show

bench_app = typer.Typer(help="Speed, beside what people use today, as ratios in one run.", no_args_is_help=True)

#: What several benchmarks ask in the same words.
Model = Annotated[str, typer.Option(help="minilm, a model folder or a Hugging Face id.")]
Repeats = Annotated[int, typer.Option(help="How often each is run; the best counts.", min=1)]


@bench_app.command("import")
def bench_import(
    data: Annotated[
        Path | None, typer.Option(envvar="TURNWISE_DATA", help="Folder with schema_guided_dialogue.")
    ] = None,
    repeats: Repeats = 3,
    as_json: AsJson = False,
) -> None:
    """Importing Schema-Guided, beside `json.load` alone over the same files."""
    from turnwise.cli.benchmarks.importing import import_benchmark

    with progress_bar() as progress:
        result = import_benchmark(data, repeats, progress)
    rows = [
        ("json.load alone", f"{result['json_load_seconds']:.2f} s"),
        ("turnwise corpus import", f"{result['import_seconds']:.2f} s"),
        ("ratio", f"{result['ratio']:.2f}"),
    ]
    show(result, facts("Importing Schema-Guided", rows), as_json=as_json)


@bench_app.command("train")
def bench_train(
    data: Annotated[
        Path | None, typer.Option(envvar="TURNWISE_DATA", help="Folder with schema_guided_dialogue.")
    ] = None,
    steps: Annotated[int, typer.Option(help="Optimiser steps of each.", min=1)] = 8,
    batch_size: Annotated[int, typer.Option(help="Pairs of a step.", min=2)] = 128,
    max_length: Annotated[int, typer.Option(help="Tokens of a text.", min=8)] = 64,
    model: Model = "minilm",
    shape: Annotated[
        str | None,
        typer.Option(help="bert-base or minilm: a backbone of that shape drawn at random, with the model's tokenizer."),
    ] = None,
    corpus: Annotated[Path | None, typer.Option(help="A store to take pairs of, instead of Schema-Guided.")] = None,
    set_: Annotated[list[str] | None, typer.Option("--set", help="key=value of our recipe; may be repeated.")] = None,
    profile: Annotated[Path | None, typer.Option(help="A file for a table of where our time goes.")] = None,
    as_json: AsJson = False,
) -> None:
    """Training on pairs of Schema-Guided, beside sentence-transformers' trainer on the same pairs; on a GPU where there is one."""
    quiet_transformers()
    from turnwise.cli.benchmarks.training import train_benchmark

    with progress_bar() as progress:
        result = train_benchmark(
            data,
            steps,
            batch_size,
            max_length,
            model=model,
            shape=shape,
            corpus=corpus,
            overrides=tuple(set_ or ()),
            profile=profile,
            progress=progress,
        )
    rows = [
        ("sentence-transformers", f"{result['sentence_transformers_pairs_per_second']:.1f} pairs/s"),
        ("turnwise", f"{result['turnwise_pairs_per_second']:.1f} pairs/s"),
        ("ratio", f"{result['ratio']:.2f}"),
        (
            "sentence-transformers, under way",
            f"{result['sentence_transformers_pairs_per_second_under_way']:.1f} pairs/s",
        ),
        ("turnwise, under way", f"{result['turnwise_pairs_per_second_under_way']:.1f} pairs/s"),
        ("ratio, under way", f"{result['ratio_under_way']:.2f}"),
        ("padding avoided", f"{result['padding_avoided']:.0%}"),
    ]
    show(result, facts("Training", rows), as_json=as_json)


@bench_app.command("encode")
def bench_encode(
    data: Annotated[
        Path | None,
        typer.Option(envvar="TURNWISE_DATA", help="Folder with schema_guided_dialogue; without it: the sample world."),
    ] = None,
    texts: Annotated[int, typer.Option(help="Texts to encode.", min=3)] = 512,
    repeats: Repeats = 3,
    model: Model = "minilm",
    as_json: AsJson = False,
) -> None:
    """Encoding by torch, ONNX in 32 and eight bits, and a static table, beside sentence-transformers on the same texts."""
    quiet_transformers()
    from turnwise.cli.benchmarks.encoding import encode_benchmark

    with progress_bar() as progress:
        result = encode_benchmark(data, texts, repeats, model, progress)
    rows = []
    for tier in result["tiers"]:
        rows.append((tier["tier"], f"{tier['texts_per_second']:,.1f} texts/s, ratio {tier['ratio']:.2f}"))
        if tier["cosine_mean"] is not None:
            close = f"{tier['cosine_mean']:.5f}, lowest {tier['cosine_lowest']:.5f}"
            rows.append(("  cosine", f"{close}, greatest difference {tier['greatest_difference']:.1e}"))
        rows.append(("  order of cosines", f"{tier['agreement']:.4f}"))
    rows += [(f"left out: {tier}", why) for tier, why in result["left_out"].items()]
    rows += [("tokens of a text", f"{result['tokens_of_a_text']:.1f}"), ("threads", str(result["threads"]))]
    title = f"Encoding {result['texts']:,} texts of {result['dataset']} on {result['device']}"
    show(result, facts(title, rows), as_json=as_json)


@bench_app.command("evaluate")
def bench_evaluate(
    data: Annotated[Path, typer.Option(envvar="TURNWISE_DATA", help="A folder of data sets, or a sample world.")],
    model: Model = "minilm",
    dataset: Annotated[list[str] | None, typer.Option(help="These data sets alone; may be repeated.")] = None,
    as_json: AsJson = False,
) -> None:
    """The DSE suite without fine-tuning, beside encoding its texts once with sentence-transformers."""
    quiet_transformers()
    from turnwise.cli.benchmarks.evaluating import evaluate_benchmark

    with progress_bar() as progress:
        result = evaluate_benchmark(data, model, dataset or (), progress)
    rows = [
        ("distinct texts", f"{result['texts']:,}"),
        ("sentence-transformers, encoding alone", f"{result['sentence_transformers_seconds']:.2f} s"),
        ("turnwise evaluate --suite dse", f"{result['evaluate_seconds']:.2f} s"),
        ("of which encoding", f"{result['encoding_seconds']:.2f} s"),
        ("ratio", f"{result['ratio']:.2f}"),
    ]
    show(result, facts("Evaluating", rows), as_json=as_json)


@bench_app.command("rerank")
def bench_rerank(
    data: Annotated[
        Path | None,
        typer.Option(envvar="TURNWISE_DATA", help="Folder with ubuntu_v2_slices; without it: the sample world."),
    ] = None,
    contexts: Annotated[int, typer.Option(help="Contexts, with ten candidates each.", min=1)] = 20,
    repeats: Repeats = 3,
    model: Model = "minilm",
    as_json: AsJson = False,
) -> None:
    """Scoring candidates, beside sentence-transformers' CrossEncoder with the same weights."""
    quiet_transformers()
    from turnwise.cli.benchmarks.reranking import rerank_benchmark

    with progress_bar() as progress:
        result = rerank_benchmark(data, contexts, repeats, model, progress)

    def rate(name: str) -> str:
        return f"{result[f'{name}_candidates_per_second']:.1f} candidates/s"

    rows = [
        ("sentence-transformers", rate("sentence_transformers")),
        ("turnwise", rate("turnwise")),
        ("ratio", f"{result['ratio']:.2f}"),
        ("sentence-transformers, a call a context", rate("sentence_transformers_by_context")),
        ("turnwise, a call a context", rate("turnwise_by_context")),
        ("ratio, a call a context", f"{result['ratio_by_context']:.2f}"),
        ("greatest difference of a score", f"{result['greatest_difference']:.1e}"),
    ]
    show(result, facts(f"Re-ranking {result['dataset']}", rows), as_json=as_json)


@bench_app.command("serve")
def bench_serve(
    model: Model = "minilm",
    clients: Annotated[
        list[int] | None, typer.Option(help="Clients at once; may be repeated; 1, 8 and 64 unless told.", min=1)
    ] = None,
    seconds: Annotated[int, typer.Option(help="That a load takes.", min=1)] = 10,
    repeats: Repeats = 3,
    also: Annotated[
        list[str] | None,
        typer.Option(help="A model to serve besides, such as an export of the same one; may be repeated."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """The service under load, beside a plain FastAPI handler that calls sentence-transformers; needs wrk."""
    quiet_transformers()
    from turnwise.cli.benchmarks.serving import CLIENTS, serve_benchmark

    with progress_bar() as progress:
        result = serve_benchmark(
            model, clients=clients or CLIENTS, seconds=seconds, repeats=repeats, also=also or (), progress=progress
        )

    def told(load: dict[str, float]) -> str:
        failed = f", {load['failed']:,} failed" if load["failed"] else ""
        return (
            f"{load['requests_per_second']:.1f} requests/s, median {load['median_milliseconds']:.1f} ms,"
            f" p99 {load['p99_milliseconds']:.1f} ms{failed}"
        )

    rows = [(f"{load['server']}, {load['clients']} at once", told(load)) for load in result["loads"]]
    rows += [(f"ratio, {at_once} at once", f"{ratio:.2f}") for at_once, ratio in result["ratios"].items()]
    rows.append(("greatest difference of a number", f"{result['greatest_difference']:.1e}"))
    show(result, facts("Serving", rows), as_json=as_json)
