"""Time of importing Schema-Guided, compared with `json.load` alone.

`python benchmarks/importing.py DATA [--repeats 3]`
"""

import json
from pathlib import Path
from tempfile import TemporaryDirectory

import typer

from turnwise.cli.benchmarks.common import best_times, schema_guided_folder
from turnwise.corpus.importing.pipeline import import_corpus
from turnwise.version import describe_environment


def main(data: Path, repeats: int = 3) -> None:
    """Print the best of several rounds; `data` holds schema_guided_dialogue."""
    folder = schema_guided_folder(data)

    def parse() -> None:
        for path in folder.rglob("dialogues_*.json"):
            json.loads(path.read_text(encoding="utf-8"))

    with TemporaryDirectory() as temporary:
        store = Path(temporary) / "store"
        functions = {"parse": parse, "import": lambda: import_corpus(folder.name, folder, store)}
        best = best_times(functions, repeats)
    result = {
        "json_load_seconds": best["parse"],
        "import_seconds": best["import"],
        "ratio": best["import"] / best["parse"],
        "environment": describe_environment(),
    }
    typer.echo(json.dumps(result, indent=2))


if __name__ == "__main__":
    typer.run(main)
