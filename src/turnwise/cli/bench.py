"""`turnwise bench`: speed compared with peers."""

from pathlib import Path
from typing import Annotated, Literal

from typer import Option

from turnwise.cli.help import command_group
from turnwise.cli.options import AsJson, Data, Datasets, Model, Overrides
from turnwise.cli.output import facts, progress_bar, show

bench_app = command_group("Measure speed relative to other libraries.")

Repeats = Annotated[int, Option(help="Number of rounds; the best counts.", min=1)]
SchemaGuided = Annotated[
    Path | None, Option("--data", envvar="TURNWISE_DATA", help="Folder with schema_guided_dialogue.")
]
AlsoServed = Annotated[
    list[str] | None,
    Option(metavar="MODEL", help="Another model to serve, such as an export of the same one; repeatable."),
]


@bench_app.command("import")
def bench_import(data: SchemaGuided = None, repeats: Repeats = 3, as_json: AsJson = False) -> None:
    """Import Schema-Guided, compared with `json.load`."""
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
    data: SchemaGuided = None,
    steps: Annotated[int, Option(help="Optimiser steps of each trainer.", min=1)] = 8,
    batch_size: Annotated[int, Option(help="Pairs per step.", min=2)] = 128,
    max_length: Annotated[int, Option(help="Tokens per text.", min=8)] = 64,
    model: Model = "minilm",
    shape: Annotated[
        str | None, Option(help="bert-base or minilm: random weights of that shape, with the model's tokenizer.")
    ] = None,
    corpus: Annotated[Path | None, Option(help="Store to take pairs from instead of Schema-Guided.")] = None,
    settings: Overrides = None,
    profile: Annotated[Path | None, Option(help="File for a table of where our time goes.")] = None,
    as_json: AsJson = False,
) -> None:
    """Train on pairs, compared with sentence-transformers' trainer.

    Pairs are those of Schema-Guided; uses a GPU if there is one.
    """
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
            overrides=tuple(settings or ()),
            profile=profile,
            progress=progress,
        )
    rows = []
    for title, key, ratio in (("", "", "ratio"), (", steady state", "steady_", "steady_ratio")):
        for name, peer in (("sentence-transformers", "sentence_transformers"), ("turnwise", "turnwise")):
            rows.append((f"{name}{title}", f"{result[f'{peer}_{key}pairs_per_second']:.1f} pairs/s"))
        rows.append((f"ratio{title}", f"{result[ratio]:.2f}"))
    rows.append(("padding avoided", f"{result['padding_avoided']:.0%}"))
    show(result, facts("Training", rows), as_json=as_json)


@bench_app.command("encode")
def bench_encode(
    data: SchemaGuided = None,
    texts: Annotated[int, Option(help="Number of texts.", min=3)] = 512,
    repeats: Repeats = 3,
    model: Model = "minilm",
    also: Annotated[
        list[str] | None,
        Option(metavar="MODEL", help="An exported model to measure too, such as a fitted static table; repeatable."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Encode texts, compared with sentence-transformers.

    Measures PyTorch (on a GPU also in half precision), ONNX (32 and 8 bits, the latter also with
    OpenVINO if that is installed) and a static table.

    Without --data, the texts come from the sample corpus.
    """
    from turnwise.cli.benchmarks.encoding import encode_benchmark

    with progress_bar() as progress:
        result = encode_benchmark(data, texts, repeats, model, also or (), progress)
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


@bench_app.command("evaluate")
def bench_evaluate(data: Data, model: Model = "minilm", dataset: Datasets = None, as_json: AsJson = False) -> None:
    """Evaluate, compared with encoding the same texts once.

    Runs the DSE suite without fine-tuning; sentence-transformers encodes its texts once.
    """
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
        Path | None, Option(envvar="TURNWISE_DATA", help="Folder with ubuntu_v2_slices; else the sample corpus.")
    ] = None,
    contexts: Annotated[int, Option(help="Contexts, with ten candidates each.", min=1)] = 20,
    repeats: Repeats = 3,
    model: Model = "minilm",
    as_json: AsJson = False,
) -> None:
    """Score candidates, compared with a CrossEncoder.

    It is sentence-transformers' class, with the same weights.
    """
    from turnwise.cli.benchmarks.reranking import rerank_benchmark

    with progress_bar() as progress:
        result = rerank_benchmark(data, contexts, repeats, model, progress)
    rows = []
    for title, key in (("", ""), (", one call per context", "_by_context")):
        for name, peer in (("sentence-transformers", "sentence_transformers"), ("turnwise", "turnwise")):
            rate = result[f"{peer}{key}_candidates_per_second"]
            rows.append((f"{name}{title}", f"{rate:.1f} candidates/s"))
        rows.append((f"ratio{title}", f"{result[f'ratio{key}']:.2f}"))
    rows.append(("largest difference of a score", f"{result['max_difference']:.1e}"))
    show(result, facts(f"Re-ranking {result['dataset']}", rows), as_json=as_json)


@bench_app.command("serve")
def bench_serve(
    model: Model = "minilm",
    clients: Annotated[
        list[int] | None, Option(metavar="INT", help="Concurrent clients; repeatable; 1, 8 and 64 by default.", min=1)
    ] = None,
    seconds: Annotated[int, Option(help="Duration of each load.", min=1)] = 10,
    repeats: Repeats = 3,
    also: AlsoServed = None,
    as_json: AsJson = False,
) -> None:
    """Put the service under load, compared with a plain handler.

    The handler is FastAPI's and calls sentence-transformers. Needs wrk.
    """
    from turnwise.cli.benchmarks.serving import CLIENTS, serve_benchmark

    with progress_bar() as progress:
        result = serve_benchmark(
            model, clients=clients or CLIENTS, seconds=seconds, repeats=repeats, also=also or (), progress=progress
        )
    rows = []
    for load in result["loads"]:
        latency = f"median {load['median_milliseconds']:.1f} ms, p99 {load['p99_milliseconds']:.1f} ms"
        failed = f", {load['failed']:,} failed" if load["failed"] else ""
        rate = f"{load['requests_per_second']:.1f} requests/s"
        rows.append((f"{load['server']}, {load['clients']} clients", f"{rate}, {latency}{failed}"))
    rows += [(f"ratio, {count} clients", f"{ratio:.2f}") for count, ratio in result["ratios"].items()]
    rows.append(("largest difference of a number", f"{result['max_difference']:.1e}"))
    show(result, facts("Serving", rows), as_json=as_json)


@bench_app.command("startup")
def bench_startup(
    model: Model = "minilm",
    repeats: Repeats = 3,
    also: AlsoServed = None,
    as_json: AsJson = False,
) -> None:
    """Start the service, compared with a plain handler.

    The time ends with the first response. The handler is FastAPI's and calls sentence-transformers.
    """
    from turnwise.cli.benchmarks.serving import startup_benchmark

    with progress_bar() as progress:
        result = startup_benchmark(model, repeats=repeats, also=also or (), progress=progress)
    rows = [(each["server"], f"{each['seconds']:.2f} s, ratio {each['ratio']:.2f}") for each in result["servers"]]
    show(result, facts("Starting", rows), as_json=as_json)


@bench_app.command("examples")
def bench_examples(
    model: Model = "minilm",
    clients: Annotated[int, Option(help="Clients that add examples.", min=1)] = 6,
    seconds: Annotated[int, Option(help="Duration of each measurement.", min=1)] = 10,
    head: Annotated[
        Literal["auto", "neighbours", "prototypes", "logistic"],
        Option(help="Classification head, as in `intents fit`."),
    ] = "auto",
    as_json: AsJson = False,
) -> None:
    """Add examples to a served classifier, compared with single calls.

    Each client adds one example at a time, while another client predicts. A single call of `IntentFolder.add`
    recalibrates the classifier each time.
    """
    from turnwise.cli.benchmarks.adding import examples_benchmark

    with progress_bar() as progress:
        result = examples_benchmark(model, clients=clients, seconds=seconds, head=head, progress=progress)
    additions, predictions = (
        f"median {result[f'{kind}_median_milliseconds']:.1f} ms, p99 {result[f'{kind}_p99_milliseconds']:.1f} ms"
        for kind in ("addition", "prediction")
    )
    rows = [
        ("single calls", f"{result['single_additions_per_second']:.1f} additions/s"),
        (f"turnwise serve, {clients} clients", f"{result['additions_per_second']:.1f} additions/s, {additions}"),
        ("ratio", f"{result['ratio']:.1f}"),
        ("prediction alone", f"median {result['prediction_alone_median_milliseconds']:.1f} ms"),
        ("prediction during additions", predictions),
        ("ratio", f"{result['prediction_ratio']:.1f}"),
        ("until predictions use the last example", f"{result['seconds_until_used']:.1f} s"),
        ("acknowledged examples that are lost", f"{result['lost']:,}"),
    ]
    show(result, facts(f"Adding to {result['examples']:,} examples, head {result['head']}", rows), as_json=as_json)
