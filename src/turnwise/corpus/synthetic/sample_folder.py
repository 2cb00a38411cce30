"""The sample world on disk: a store of its dialogues, and beside it the labelled sets that evaluations need.

STORE/                                the store
STORE/intents/{train,valid,test}.jsonl     text, intent, domain, slots, template; 'out_of_scope' among the intents
STORE/responses/{train,valid,test}.txt     label<TAB>turn…<TAB>response, as response-selection files are
STORE/inference/{train,valid,test}.jsonl   dialogues that contradict themselves or do not
STORE/pairs/{train,valid,test}.jsonl       two texts, how alike they are (0 to 5), and what one says of the other
STORE/triplets/{train,valid,test}.jsonl    a text, one that says the same, and one that contradicts it
"""

import json
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from turnwise.core.progress import Progress, silent
from turnwise.corpus.store import Store, StoreWriter
from turnwise.corpus.synthetic.sample import sample_dialogues
from turnwise.corpus.synthetic.sample_sets import (
    inference_examples,
    labelled_utterances,
    response_examples,
    text_pairs,
    text_triplets,
)
from turnwise.version import __version__

SPLITS = ("train", "valid", "test")

#: The response set is made of at least so many dialogues: a handful would not hold enough wrong answers to choose from.
RESPONSE_DIALOGUES = 200

#: Inference examples in all splits together: enough to train a probe on.
INFERENCE = 2_000


def write_sample(out: Path, dialogues: int, seed: int, progress: Progress = silent) -> Store:
    """Generates the sample world of that size and seed; the same seed gives the same bytes."""
    with StoreWriter(out) as writer:
        for number, dialogue in enumerate(sample_dialogues(dialogues, seed), 1):
            writer.write(dialogue)
            if number % 100 == 0:
                progress("dialogues", number, dialogues)
        writer.commit(
            {
                "turnwise": __version__,
                "reader": "sample",
                "options": {"dialogues": dialogues, "seed": seed},
                "licence": "Apache-2.0",
                "home": "",
                "read": asdict(writer.counts),
                "left_out": {},
                "reasons": {},
                "facts": {},
                "steps": [],
                "inputs": [],
            }
        )
    store = Store(out)
    progress("labelled sets", 0, 5)
    _write(out / "intents", "jsonl", ((item.split, _line(item)) for item in labelled_utterances(seed)))
    progress("labelled sets", 1, 5)
    answered = store if dialogues >= RESPONSE_DIALOGUES else sample_dialogues(RESPONSE_DIALOGUES, seed)
    _write(
        out / "responses",
        "txt",
        (
            (str(example.split), "\t".join((str(int(position == example.positive)), *example.context, candidate)))
            for example in response_examples(answered, seed)
            for position, candidate in enumerate(example.candidates)
        ),
    )
    progress("labelled sets", 2, 5)
    _write(out / "inference", "jsonl", ((item.split, _line(item)) for item in inference_examples(INFERENCE, seed)))
    progress("labelled sets", 3, 5)
    _write(out / "pairs", "jsonl", ((item.split, _line(item)) for item in text_pairs(seed)))
    progress("labelled sets", 4, 5)
    _write(out / "triplets", "jsonl", ((item.split, _line(item)) for item in text_triplets(seed)))
    return store


def _line(item: Any) -> str:
    record = asdict(item)
    del record["split"]  # the file tells
    return json.dumps(record, ensure_ascii=False)


def _write(folder: Path, suffix: str, rows: Iterable[tuple[str, str]]) -> None:
    """Writes rows to a file a split; each takes its name when it is whole."""
    folder.mkdir(exist_ok=True)
    names = {split: folder / f"{split}.{suffix}" for split in SPLITS}
    files = {split: name.with_suffix(".part").open("w", encoding="utf-8") for split, name in names.items()}
    for split, row in rows:
        files[split].write(row + "\n")
    for split, name in names.items():
        files[split].close()
        name.with_suffix(".part").replace(name)
