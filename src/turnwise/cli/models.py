"""`turnwise embed`, `export`, `compress` and `coherence`: commands that apply or convert a model."""

import json
import sys
from contextlib import redirect_stdout
from dataclasses import asdict, astuple, fields
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from typer import Argument, Option

import turnwise
from turnwise.cli import options
from turnwise.cli.output import excerpt, facts, lines, message, progress_bar, show
from turnwise.core.imports import require

#: Formats that `turnwise embed` writes, by engine.
_EMBED_FORMATS = {"local": (".npy", ".parquet", ".jsonl"), "ray": (".lance",)}

#: Defaults of `turnwise export --format static`.
_DIMENSIONS, _WORDS, _TEXTS = 256, 10_000, 20_000


def embed_command(
    model: Annotated[
        str, Argument(help=f"{options.PACKAGED_ENCODERS}, a folder, a Hugging Face id, or as for `evaluate`.")
    ],
    source: Annotated[
        str,
        Argument(
            metavar="INPUT",
            help="A store, or a .txt (one text per line), .csv, .tsv, .xlsx, .jsonl or .parquet file. With --engine "
            "ray: a store, a .parquet file or a folder of them, or a URI of one.",
        ),
    ],
    out: Annotated[str, Option(help=".npy (array), .parquet or .jsonl file (with texts); ray: a .lance table.")],
    column: Annotated[str, Option(help="Text column of a table.")] = "text",
    split: options.Splits = None,
    speaker: options.Speakers = None,
    normalise: Annotated[bool | None, Option(help="Scale to length 1; by default as the model does.")] = None,
    max_length: Annotated[int | None, Option(min=1, help="Maximum tokens per text.")] = None,
    compressed: options.Compressed = False,
    precision: Annotated[
        Literal["float32", "bfloat16", "float16"], Option(help="Precision of products; float16 is faster on a GPU.")
    ] = "float32",
    runtime: options.RuntimeName = None,
    engine: Annotated[Literal["local", "ray"], Option(help="Encode in this process or on a Ray cluster.")] = "local",
    workers: Annotated[int | None, Option(min=1, help="Ray: workers; by default one per GPU, or core.")] = None,
    block_rows: Annotated[int | None, Option(min=1, help="Ray: texts per block; 16384 by default.")] = None,
    address: Annotated[str | None, Option(help="Ray: cluster; by default RAY_ADDRESS, or a local one.")] = None,
    as_json: options.AsJson = False,
) -> None:
    """Encode texts and write one vector per text, in input order.

    After an interruption the same command continues.

    Example: `turnwise embed turnwise-small stores/our-logs --speaker user --out vectors.parquet`
    """
    _check_embed_out(out, engine)
    own = {"ray": {"--workers": workers, "--block-rows": block_rows, "--address": address}}
    own["local"] = {"--precision": None if precision == "float32" else precision, "--runtime": runtime}
    for needed, given in own.items():
        for name, value in given.items():
            if engine != needed and value is not None:
                raise typer.BadParameter(f"needs --engine {needed}", param_hint=name)
    arguments: dict[str, Any] = {"normalise": normalise, "max_length": max_length}
    if engine == "local":
        from turnwise.corpus.texts import open_text_source

        texts = open_text_source(Path(source), column, split or (), speaker or ())
        from turnwise.assist.search.embedding import embed
        from turnwise.models.loading import load_model

        with progress_bar() as progress:
            loaded = load_model(model, compressed=compressed, precision=precision, runtime=runtime)
            result = embed(loaded, texts, Path(out), progress=progress, **arguments)
    else:
        from turnwise.assist.search.parquet_blocks import BLOCK_ROWS
        from turnwise.assist.search.ray_embedding import embed_on_ray

        # Ray reports dead workers on standard output, which is reserved for the result
        with redirect_stdout(sys.stderr), progress_bar() as progress:
            result = embed_on_ray(
                model,
                source,
                out,
                column=column,
                splits=split or (),
                speakers=speaker or (),
                workers=workers,
                block_rows=block_rows or BLOCK_ROWS,
                address=address,
                compressed=compressed,
                progress=progress,
                **arguments,
            )
    data = {"out": out, "texts": result.texts, "size": result.size, "resumed": result.resumed}
    resumed = f", {result.resumed:,} of them by an earlier run" if result.resumed else ""
    show(data, facts(out, [("texts", f"{result.texts:,}{resumed}"), ("dimensions", str(result.size))]), as_json=as_json)


def _check_embed_out(out: str, engine: Literal["local", "ray"]) -> None:
    if not out.endswith(_EMBED_FORMATS[engine]):
        other = "ray" if engine == "local" else "local"
        hint = f"; use --engine {other} for that format" if out.endswith(_EMBED_FORMATS[other]) else ""
        allowed = " or ".join(_EMBED_FORMATS[engine])
        raise typer.BadParameter(f"{out} does not end in {allowed}{hint}", param_hint="--out")
    if "://" not in out and not Path(out).absolute().parent.is_dir():
        raise typer.BadParameter(f"the folder {Path(out).absolute().parent} does not exist", param_hint="--out")


def export_command(
    model: options.ModelArgument,
    out: Annotated[Path, Option(file_okay=False, help="Folder to write: new, empty, or with --force an export.")],
    format: Annotated[
        Literal["onnx", "onnx-int8", "static"],
        Option(help="onnx: 32-bit floats; onnx-int8: 8-bit weights; static: a table of token vectors."),
    ] = "onnx",
    pooling: options.PoolingName = None,
    compressed: options.Compressed = False,
    dimensions: Annotated[int | None, Option(help=f"static: dimensions; {_DIMENSIONS} by default.", min=2)] = None,
    corpus: Annotated[
        list[Path] | None, Option(help="Store to fit a static table to, or to measure 8-bit ranges on; repeatable.")
    ] = None,
    words: Annotated[int | None, Option(help=f"static: words to add as tokens; {_WORDS:,} by default.", min=0)] = None,
    texts: Annotated[int | None, Option(help=f"Texts of each --corpus; {_TEXTS:,} or 400 by default.", min=0)] = None,
    split: options.Splits = None,
    speaker: options.Speakers = None,
    force: options.Force = False,
    as_json: options.AsJson = False,
) -> None:
    """Export a model to ONNX or to a table of token vectors.

    Every command accepts the exported folder as a model.

    An ONNX graph is compared with the model before it is written. Exported models cannot be trained further.

    Example: `turnwise export turnwise-small --format onnx-int8 --out small-int8`
    """
    corpus_options = {"--words": words, "--texts": texts, "--split": split, "--speaker": speaker}
    for name, value in {"--dimensions": dimensions, "--corpus": corpus, **corpus_options}.items():
        formats = ("static",) if name in ("--dimensions", "--words") else ("static", "onnx-int8")
        if value is not None and format not in formats:
            raise typer.BadParameter(f"needs --format {' or '.join(formats)}, got {format}", param_hint=name)
        if name in corpus_options and value is not None and not corpus:
            raise typer.BadParameter("needs a store, named with --corpus", param_hint=name)
    if compressed and format == "static":
        raise typer.BadParameter("needs --format onnx or onnx-int8, got static", param_hint="--compressed")
    require("torch", "pyarrow", extra="train")
    from turnwise.corpus.storage.store import require_speakers
    from turnwise.models.backbone.source import COMPRESSION
    from turnwise.models.compression import read_compression
    from turnwise.models.distillation import sample_corpora
    from turnwise.models.export import CALIBRATION_TEXTS, export

    with progress_bar() as progress:
        device = None if format == "static" else "cpu"
        encoder = turnwise.Encoder.load(model, device=device, pooling=pooling)
        compression = read_compression(model, encoder) if compressed else None
        arguments: dict[str, Any] = {"dimensions": dimensions or _DIMENSIONS}
        if corpus:
            combined = turnwise.read_corpus(*corpus, splits=split)
            require_speakers(combined.stores, speaker or ())
            default_words, default_texts = (_WORDS, _TEXTS) if format == "static" else (0, CALIBRATION_TEXTS)
            arguments["words"], arguments["texts"] = sample_corpora(
                [combined.read(store) for store in combined.stores],
                default_words if words is None else words,
                default_texts if texts is None else texts,
                speakers=speaker or (),
                progress=progress,
            )
        result = export(encoder, out, format, **arguments, overwrite=force, progress=progress)
        if compression is not None:
            compression.save(out / COMPRESSION)
    data = {"folder": str(result.folder), "format": format, "bytes": result.size, "tokens": result.tokens}
    data |= {"greatest_difference": result.difference, "min_cosine": result.cosine}
    rows = [("format", format), ("size", f"{result.size / 2**20:,.1f} MiB")]
    if result.tokens is not None:
        rows.append(("tokens", f"{result.tokens:,}"))
    if result.difference is not None:
        rows.append(("largest difference", f"{result.difference:.2g}"))
    if result.cosine is not None:
        rows.append(("lowest cosine", f"{result.cosine:.6f}"))
    show(data, facts(out, rows), as_json=as_json)


def compress_command(
    model: Annotated[Path, Argument(help="Folder of a model trained on templates (objective tadse).")],
    data: options.OptionalData = None,
    dataset: options.Datasets = None,
    weight: Annotated[float | None, Option(min=0, max=1, help="λ; by default it is selected on --dataset.")] = None,
    source: Annotated[Literal["given", "detected", "retrieved"] | None, Option(help="Origin of templates.")] = None,
    detector: Annotated[Path | None, Option(help="Store of `corpus detect` whose detector to use.")] = None,
    as_json: options.AsJson = False,
) -> None:
    """Set the weight λ of templates in vectors (TaDSE).

    λ is given, or selected on validation utterances, and stored in the model folder. Only commands with --compressed
    and `CompressedEncoder.load(MODEL)` use it.

    Example: `turnwise compress model --data data --dataset snips --source given`
    """
    if weight is not None and dataset:
        raise typer.BadParameter("λ is either given or selected on a data set", param_hint="--weight / --dataset")
    if weight is None and source is None and detector is None and not dataset:
        raise typer.BadParameter("give λ, or a data set to select it on", param_hint="--weight / --dataset")
    if dataset and data is None:
        raise typer.BadParameter("name the folder of data sets", param_hint="--data")
    require("torch", "pyarrow", extra="train")
    from turnwise.evaluation.tasks.compression import choose_template_weight, set_compression

    curve: dict[float, float] = {}
    if data is not None and dataset:
        with progress_bar() as progress:
            result, curve = choose_template_weight(model, data, dataset, source, detector, progress)
    else:
        result = set_compression(model, template_weight=weight, source=source, detector=detector)
    points = [{"template_weight": key, "accuracy": value} for key, value in curve.items()]
    blocks = [facts(model, [("λ", f"{result.template_weight:g}"), ("templates", result.source)])]
    if curve:
        rows = [(f"{key:g}", f"{value:.2f}") for key, value in curve.items()]
        blocks.append(facts("Accuracy on validation utterances by λ", rows))
    answer = {"template_weight": result.template_weight, "source": result.source, "curve": points}
    show(answer, *blocks, as_json=as_json)
    if curve and not as_json and curve[0.0] > curve[result.template_weight]:
        message("accuracy is higher without compression (λ = 0): leave compression off for this data")


def coherence_command(
    store: Annotated[Path, Argument(help="Store to check.")],
    model: Annotated[str, Option(help="Re-ranker with the deletion task, such as turnwise-reranker.")],
    top: Annotated[int, Option(min=1, help="Maximum number of turns to list.")] = 20,
    threshold: Annotated[float, Option(min=0, max=1, help="List only turns with at least this score.")] = 0.0,
    split: options.Splits = None,
    out: Annotated[Path | None, options.out_file(".csv", ".jsonl", help="Write the list to this file.")] = None,
    as_json: options.AsJson = False,
) -> None:
    """List turns that seem out of place in their dialogues.

    The most suspicious come first. The score is the re-ranker's probability that a turn comes from another dialogue,
    given the turns around it; the previous turn is shown with it. Dialogues of a single turn are skipped.

    Example: `turnwise coherence stores/our-logs --model reranker --top 50 --out suspects.csv`
    """
    require("torch", "pyarrow", extra="train")
    corpus = turnwise.read_corpus(store, splits=split or None)
    from turnwise.models.coherence import OutOfPlaceTurn, check_corpus

    with progress_bar() as progress:
        progress("loading the re-ranker", 0)
        result = check_corpus(
            turnwise.Reranker.load(model), corpus, top=top, threshold=threshold, total=len(corpus), progress=progress
        )
    skipped = f"; {result.skipped:,} of a single turn skipped" if result.skipped else ""
    rows = [("read", f"{result.dialogues:,} dialogues, {result.turns:,} turns scored{skipped}")]
    blocks = []
    if out is not None:
        from turnwise.core.files import csv_text, write_atomic

        if out.suffix == ".csv":
            text = csv_text([field.name for field in fields(OutOfPlaceTurn)], map(astuple, result.suspects))
        else:
            text = "".join(json.dumps(asdict(suspect), ensure_ascii=False) + "\n" for suspect in result.suspects)
        write_atomic(out, text)
        rows.append(("written", f"{out}: {len(result.suspects):,} turns"))
    else:
        for suspect in result.suspects:
            title = f"{suspect.score:.3f}  {suspect.dialogue}, turn {suspect.turn}, {suspect.speaker}"
            previous = [] if suspect.before is None else [(f"  {excerpt(suspect.before)}", "dim")]
            blocks.append(lines((title, "bold"), *previous, (f"  {excerpt(suspect.text)}", "")))
    show(asdict(result), facts(store, rows), *blocks, as_json=as_json)
