"""Time and memory of every stage on a synthetic corpus far larger than memory, each stage in its own process.

    python benchmarks/corpus_scale.py FOLDER --utterances 37000000

prints a table of the stages with seconds and peak memory: resident (including memory-mapped files) and anonymous, which
the system cannot reclaim. The logs are generated once, if FOLDER has none; `--only` runs some of the stages. Temporary
files are also written to FOLDER.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

STORES = 4
TURNS = 10

#: The vocabulary of the synthetic turns.
TEXT = """
about after again all also always and any around ask away back bad because been before being best better big blue book
both bring but buy call can car change city class clean close cold come could day did different dinner does done door
down early easy eat else end even every far few find first flight food for found free friday from full game get give
good great green guest had half happy hard has have hear help here high home hotel hour house how idea just keep kind
know large last late leave left less like line list little live long look lost lot love made mail make many maybe mean
meet might minute monday money month more morning most move much music name near need never new next nice night
nothing now number of off office often old once one only open order other our out over own paid part pay people
perhaps phone place plan play please price quick quiet rain read ready really red rest ride right road room round safe
same say school second see seem sell send shop short should show side small some song soon sorry sound south start
stay still stop store street such sunny sure table take talk taxi tell than thank that the then there these they thing
think this ticket time to today together tomorrow too town train travel trip try turn two under until up use very
visit wait walk want warm was watch water way week well went west what when where which while white who why will wind
with without word work would year yes yet young
"""
WORDS = TEXT.split()
SLOTS = ("city", "date", "name", "price", "title")


class Speech:
    """Synthetic turns: half are answers of skewed frequency, three in ten contain slot values, the rest are unique."""

    def __init__(self, random_numbers: random.Random):
        self._random = random_numbers
        self._pieces = [self._sentence(2, 4) for _ in range(30_000)]
        self._answers = [self._sentence(2, 7) for _ in range(100_000)]
        self._frames = [[self._sentence(1, 4) for _ in range(number % 2 + 2)] for number in range(20_000)]
        self._names = [[SLOTS[self._often(len(SLOTS))] for _ in frame[1:]] for frame in self._frames]
        self._values = [f"{self._sentence(1, 1)} {number}" for number in range(500_000)]

    def _sentence(self, least: int, most: int) -> str:
        return " ".join(self._random.choices(WORDS, k=self._random.randint(least, most)))

    def _often(self, size: int) -> int:
        """Return a number below `size`, small ones far more often."""
        return int(size * self._random.random() ** 4)

    def turn(self, speaker: str) -> str:
        """Return a turn as JSON."""
        kind = self._random.random()
        if kind < 0.5:
            return f'{{"speaker":"{speaker}","text":"{self._answers[self._often(len(self._answers))]}"}}'
        if kind < 0.8:
            return self._with_slots(speaker, self._often(len(self._frames)))
        return f'{{"speaker":"{speaker}","text":"{" ".join(self._random.choices(self._pieces, k=3))}"}}'

    def _with_slots(self, speaker: str, frame: int) -> str:
        first, *others = self._frames[frame]
        text, slots = first, []
        for name, words in zip(self._names[frame], others, strict=True):
            value = self._values[self._often(len(self._values))]
            start = len(text) + 1
            slots.append(f'{{"name":"{name}","value":"{value}","start":{start},"end":{start + len(value)}}}')
            text = f"{text} {value} {words}"
        return f'{{"speaker":"{speaker}","text":"{text}","slots":[{",".join(slots)}]}}'


def generate(folder: Path, utterances: int) -> None:
    """Write logs in the native format, one per store; one dialogue in a hundred is a duplicate."""
    folder.mkdir(exist_ok=True)
    speech, said = Speech(random.Random(1)), random.Random(2)
    for store in range(STORES):
        written = 0
        with (folder / f"{store}.jsonl").open("w", encoding="utf-8") as file:
            turns = ""
            while written < utterances // STORES:
                if not turns or said.random() >= 0.01:
                    turns = ",".join(speech.turn(("user", "system")[turn % 2]) for turn in range(TURNS))
                file.write(f'{{"id":"{store}-{written}","split":"train","turns":[{turns}]}}\n')
                written += TURNS


@dataclass(frozen=True, slots=True)
class Mixing:
    """How an epoch mixes groups of examples (dialogues, stores, …).

    Attributes:
        together: how often two examples of one batch are of one group.
        chance: how often two examples are if everything is shuffled.
        correlation: of places in the corpus with those in the order, from −1 to 1.
    """

    together: float
    chance: float
    correlation: float


def mixing(sampler: Any, batch_size: int, groups: Any, epoch: int = 0) -> Mixing:
    """Measure how an epoch of a sampler mixes groups, given the group number of every example."""
    import numpy as np

    def pairs(counts: Any) -> int:
        counts = counts.astype(np.int64)
        return int((counts * (counts - 1)).sum()) // 2

    rows = sampler.rows(epoch, 0, len(sampler))
    batches = np.arange(len(rows)) // batch_size
    # a number for each group in each batch
    joint = np.unique(batches * (int(groups.max()) + 1) + groups[rows], return_counts=True)[1]
    _, sizes = np.unique(batches, return_counts=True)
    _, every = np.unique(groups[rows], return_counts=True)
    return Mixing(
        together=pairs(joint) / max(1, pairs(sizes)),
        chance=pairs(every) / max(1, pairs(np.array([len(rows)]))),
        correlation=float(np.corrcoef(rows, np.arange(len(rows)))[0, 1]),
    )


# ---- the stages: each imports what it needs, since that memory is part of the measurement


def stage_import(folder: Path) -> str:
    from turnwise import import_corpus

    kept = dropped = 0
    for log in sorted((folder / "logs").glob("*.jsonl")):
        manifest = import_corpus("jsonl", log, folder / "stores" / log.stem, steps=["exact-duplicates"]).manifest
        kept += manifest["utterances"]
        dropped += manifest["steps"][0]["changes"].get("dialogues dropped", 0)
    return f"{kept:,} utterances kept, {dropped:,} dialogues dropped"


def _corpus(folder: Path):  # type: ignore[no-untyped-def]
    from turnwise import read_corpus

    return read_corpus(*sorted((folder / "stores").iterdir()))


def _training_corpus(folder: Path):  # type: ignore[no-untyped-def]
    from turnwise.training.disk_cache import TrainingCorpus

    return TrainingCorpus(_corpus(folder), folder / "cache")


def stage_stats(folder: Path) -> str:
    from turnwise.corpus.stats import compute_corpus_stats

    found = compute_corpus_stats(_corpus(folder))
    return f"{found.distinct_utterances:,} distinct, the top 1% make up {found.top_1_percent_share:.0%}"


def _recipe(folder: Path, *changes: str):  # type: ignore[no-untyped-def]
    from turnwise.training.recipe import load_recipe

    return load_recipe("wmdc", ["backbone=minilm", "layers=1", "batch_size=32", "steps=12", "precision=fp32", *changes])


def stage_tokens(folder: Path) -> str:
    from turnwise.models.encoder import Encoder
    from turnwise.training.tokens import tokenise_corpus

    texts = tokenise_corpus(_training_corpus(folder), Encoder.load("minilm").backbone.tokenizer)
    most_frequent = max(int(texts.frequencies[turn]) for turn in range(100_000))
    return f"{len(texts):,} turns, the most frequent answer {most_frequent:,} times"


def stage_examples(folder: Path) -> str:
    from turnwise.models.encoder import Encoder
    from turnwise.objectives.registry import make_objective
    from turnwise.training.examples import extract_examples
    from turnwise.training.tokens import tokenise_corpus

    corpus = _training_corpus(folder)
    texts = tokenise_corpus(corpus, Encoder.load("minilm").backbone.tokenizer)
    entries = _recipe(folder).entries
    found = extract_examples(corpus, texts, {name: entry.objective for name, entry in entries.items()})
    found |= extract_examples(corpus, texts, {"dse": make_objective("dse", {"positives": "dropout"})})
    return ", ".join(f"{name}: {len(examples):,} examples" for name, examples in found.items())


def stage_templates(folder: Path) -> str:
    from turnwise.corpus.slots.templates import EntityBook, TemplateTable

    corpus = _corpus(folder)
    book, table = EntityBook.from_corpus(corpus, "user"), TemplateTable.from_corpus(corpus, "user")
    (_, most), *_ = table.most_common(5)
    return f"{book.distinct_values:,} values, {len(table):,} templates, the most common {most:,} times"


def stage_template_tokens(folder: Path) -> str:
    from turnwise.corpus.slots.templates import template_text
    from turnwise.models.encoder import Encoder
    from turnwise.training.tokens import tokenise_corpus

    corpus = _training_corpus(folder)
    texts = tokenise_corpus(corpus, Encoder.load("minilm").backbone.tokenizer, rewriter=template_text)
    return f"the first template has {len(texts.rewritten(0)[0])} tokens"


def stage_augment(folder: Path) -> str:
    from turnwise.corpus.slots.augmentation import augment
    from turnwise.corpus.slots.templates import EntityBook
    from turnwise.corpus.storage.writing import StoreWriter

    corpus = _corpus(folder)
    with StoreWriter(folder / "augmented") as writer:
        for dialogue in augment(corpus, EntityBook.from_corpus(corpus, "user"), top=3, max_per_template=5):
            writer.write(dialogue)
        writer.commit({})
    return f"{writer.counts.utterances:,} utterances written"


def stage_train(folder: Path) -> str:
    return _trained(folder, "shuffle_buffer=1000000")


def stage_train_whole(folder: Path) -> str:
    return _trained(folder, "shuffle_buffer=null")


def _trained(folder: Path, *changes: str) -> str:
    import tempfile

    from turnwise.training.loop import train

    with tempfile.TemporaryDirectory(dir=folder) as out:
        train(_recipe(folder, *changes), _corpus(folder), Path(out) / "run", cache=folder / "cache")
        lines = (Path(out) / "run" / "metrics.jsonl").read_text().splitlines()
    return f"{json.loads(lines[-1])['examples_per_second']:.0f} examples/s in the last steps"


def stage_near_duplicates(folder: Path) -> str:
    """Runs only with --only: it takes 0.6 ms per dialogue."""
    from turnwise.corpus.hygiene.steps import make_step

    step = make_step("near-duplicates")
    kept = sum(1 for _ in step(_corpus(folder)))
    return f"{kept:,} dialogues kept"


def stage_mixing(folder: Path) -> str:
    """Runs only with --only: a table of how well shuffle buffers mix DSE's pairs."""
    import numpy as np

    from turnwise.models.encoder import Encoder
    from turnwise.objectives.registry import make_objective
    from turnwise.training.batches import BatchLoader, LoaderConfig
    from turnwise.training.examples import extract_examples
    from turnwise.training.tokens import tokenise_corpus

    corpus, objective = _training_corpus(folder), make_objective("dse", {})
    encoder = Encoder.load("minilm")
    texts = tokenise_corpus(corpus, encoder.backbone.tokenizer)
    examples = extract_examples(corpus, texts, {"dse": objective})["dse"]
    firsts = np.concatenate(
        [
            examples.rows(np.arange(start, min(start + 1_000_000, len(examples))))[0][:, 0, 0]
            for start in range(0, len(examples), 1_000_000)
        ]
    )
    dialogues = np.searchsorted(texts.dialogue_starts, firsts, "right") - 1
    stores = np.searchsorted(np.cumsum([len(store) for store in corpus.dialogues.stores]), dialogues, "right")
    rows = []
    for buffer in (None, 10_000_000, 1_000_000, 100_000, 10_000, 1_000):
        if buffer is not None and buffer >= len(examples):
            continue
        config = LoaderConfig(1024, 64, 512, 1, buffer)
        loader = BatchLoader("dse", objective, examples, texts, encoder.composer, config)
        dialogue, store = (mixing(loader.samplers[0], 1024, groups) for groups in (dialogues, stores))
        ratio = dialogue.together / dialogue.chance
        shares = f"{dialogue.together:.2e} ({ratio:.1f} times) | {store.together:.4f} | {store.chance:.4f}"
        rows.append(f"| {buffer or 'all':>10} | {shares} | {dialogue.correlation:+.4f} |")
    return f"{len(examples):,} pairs\n" + "\n".join(rows) + "\n"


STAGES: dict[str, Callable[[Path], str]] = {
    "import": stage_import,
    "stats": stage_stats,
    "tokens": stage_tokens,
    "examples": stage_examples,
    "train": stage_train,
    "train-whole": stage_train_whole,
    "templates": stage_templates,
    "template-tokens": stage_template_tokens,
    "augment": stage_augment,
}
OPTIONAL_STAGES = {"near-duplicates": stage_near_duplicates, "mixing": stage_mixing}


def status(process: str, *names: str) -> list[int]:
    """Return values of /proc in bytes; 0 if the process has ended."""
    try:
        lines = dict(line.split(":", 1) for line in Path("/proc", process, "status").read_text().splitlines())
    except OSError:
        return [0] * len(names)
    return [int(lines[name].split()[0]) * 1024 if name in lines else 0 for name in names]


def measured(stage: str, folder: Path) -> dict[str, object]:
    """Run a stage in its own process and return its message, seconds and peak memory."""
    (folder / "temporary").mkdir(exist_ok=True)
    command = [sys.executable, __file__, str(folder), "--inside", stage]
    environment = {**os.environ, "TMPDIR": str(folder / "temporary")}
    start, anonymous = time.perf_counter(), 0
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        while process.poll() is None:
            anonymous = max(anonymous, *status(str(process.pid), "RssAnon"))
            time.sleep(0.02)
        assert process.stdout is not None and process.stderr is not None
        said, wrong = process.stdout.read(), process.stderr.read()
    if process.returncode:
        raise SystemExit(f"stage {stage} failed:\n{wrong}")
    return {
        "stage": stage,
        "seconds": time.perf_counter() - start,
        "anonymous": anonymous,
        **json.loads(said.splitlines()[-1]),
    }


def results(folder: Path, utterances: int, only: list[str]) -> Iterator[dict[str, object]]:
    """Makes the logs where they are missing, then the stages' figures."""
    folder.mkdir(parents=True, exist_ok=True)
    logs = folder / "logs"
    if not logs.exists():
        start = time.perf_counter()
        generate(folder / "unfinished", utterances)
        (folder / "unfinished").rename(logs)
        seconds = time.perf_counter() - start
        yield {
            "stage": "generate",
            "seconds": seconds,
            "processor": time.process_time(),
            "found": f"{utterances:,} utterances",
        }
    for stage in only or STAGES:
        yield measured(stage, folder)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--utterances", type=int, default=37_000_000)
    parser.add_argument(
        "--only", nargs="*", default=[], choices=[*STAGES, *OPTIONAL_STAGES], metavar="STAGE", help="of: %(choices)s"
    )
    parser.add_argument("--json", type=Path, help="also write the figures here")
    parser.add_argument("--inside", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.inside:
        found = (STAGES | OPTIONAL_STAGES)[arguments.inside](arguments.folder)
        sys.stdout.write(
            json.dumps({"found": found, "peak": status("self", "VmHWM")[0], "processor": time.process_time()}) + "\n"
        )
        return
    rows = []
    sys.stdout.write(
        "| stage | seconds | of the processor | peak resident | peak anonymous | |\n|---|---:|---:|---:|---:|---|\n"
    )
    for row in results(arguments.folder, arguments.utterances, arguments.only):
        rows.append(row)
        sizes = " | ".join(f"{row[name] / 1e6:,.0f} MB" if name in row else "" for name in ("peak", "anonymous"))  # type: ignore[operator]
        sys.stdout.write(
            f"| {row['stage']} | {row['seconds']:,.0f} | {row['processor']:,.0f} | {sizes} | {row['found']} |\n"
        )
        sys.stdout.flush()
        if arguments.json:
            arguments.json.write_text(json.dumps(rows, indent=2) + "\n")


if __name__ == "__main__":
    main()
