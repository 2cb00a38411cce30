"""What the turns before a text add to intents: Schema-Guided's services, with and without context.

python benchmarks/intents_in_context.py DATA [--split test] [--seeds 5]

DATA holds `schema_guided_dialogue`. The classes are the services of the split with their intents; a user's turn has the
first active intent of its frames. A tenth of the dialogues is evaluated, examples come from the others.
"""

import argparse
import json
from collections import defaultdict
from pathlib import Path

import numpy as np
from rich import print as show

from turnwise import Encoder, IntentClassifier
from turnwise.assist.intents.context import join_turns, last_turn

SHOTS = (5, 20)


def read_turns(folder: Path) -> list[list[tuple[str, str, bool]]]:
    """Return, for each dialogue, its user turns in context, their intents, and whether one is mentioned first there."""
    dialogues = []
    for path in sorted(folder.glob("dialogues_*.json")):
        for record in json.loads(path.read_text(encoding="utf-8")):
            texts: list[str] = []
            seen: set[str] = set()
            labelled = []
            for turn in record["turns"]:
                texts.append(turn["utterance"])
                active = (
                    f"{frame['service']}.{frame['state']['active_intent']}"
                    for frame in turn["frames"]
                    if turn["speaker"] == "USER" and frame["state"]["active_intent"] != "NONE"
                )
                if intent := next(active, None):
                    labelled.append((join_turns(texts), intent, intent not in seen))
                    seen.add(intent)
            dialogues.append(labelled)
    return dialogues


def main() -> None:
    """Print the accuracy with and without context."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--split", choices=("dev", "test"), default="test")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--model", default="turnwise-small")
    arguments = parser.parse_args()
    dialogues = read_turns(arguments.data / "schema_guided_dialogue" / arguments.split)
    encoder = Encoder.load(arguments.model)
    accuracy: dict[tuple[int, str], list[tuple[float, float]]] = defaultdict(list)
    for seed in range(arguments.seeds):
        random = np.random.default_rng(seed)
        order = random.permutation(len(dialogues))
        held_out = [each for row in order[: len(order) // 10] for each in dialogues[row]]
        rows: dict[str, list[str]] = defaultdict(list)
        for row in order[len(order) // 10 :]:
            for text, intent, _ in dialogues[row]:
                rows[intent].append(text)
        texts, truth, first = (np.array(each) for each in zip(*held_out, strict=True))
        known = np.isin(truth, list(rows))
        for shots in SHOTS:
            chosen = [(each, intent) for intent in sorted(rows) for each in random.permutation(rows[intent])[:shots]]
            for name, convert in (("alone", last_turn), ("in context", str)):
                classifier = IntentClassifier(encoder, use_names=False, false_rejection=None)
                classifier.fit([convert(text) for text, _ in chosen], [intent for _, intent in chosen])
                correct = classifier.predict([convert(text) for text in texts[known]]) == truth[known]
                accuracy[shots, name].append((correct.mean(), correct[~first[known]].mean()))
                used = "" if classifier.context_selection_ is None else classifier.context_selection_.reason
                show(f"{arguments.split} {seed} {shots} {name}: {correct.mean():.1%} {used}", flush=True)
    show(f"\n{len(rows)} intents, {len(texts):,} texts in the last sample\n")
    show("| | examples per intent | all turns | after the first mention |\n|---|--:|--:|--:|")
    for (shots, name), values in accuracy.items():
        means, deviations = np.mean(values, 0), np.std(values, 0, ddof=1)
        cells = (f"{100 * mean:.1f} ± {100 * each:.1f}" for mean, each in zip(means, deviations, strict=True))
        show(f"| {name} | {shots} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
