"""`turnwise glove`: word vectors from conversations."""

from pathlib import Path
from typing import Annotated

import typer

from turnwise.cli.terminal import AsJson, bar, print_json, print_table


def glove_command(
    corpus: Annotated[list[Path], typer.Option(help="A store to learn from; may be repeated.")],
    out: Annotated[Path, typer.Option(dir_okay=False, help="The file of word vectors.")],
    split: Annotated[list[str] | None, typer.Option(help="Take only dialogues of this split; may be repeated.")] = None,
    size: Annotated[int, typer.Option(min=1, help="Numbers in a vector.")] = 100,
    window: Annotated[int, typer.Option(min=1, help="How far apart two words of a turn may be.")] = 10,
    least: Annotated[int, typer.Option(min=1, help="Leave out words that occur fewer times.")] = 5,
    epochs: Annotated[int, typer.Option(min=1, help="Passes over all pairs of words.")] = 15,
    seed: Annotated[int, typer.Option(help="Of the first vectors and the order of pairs.")] = 1,
    as_json: AsJson = False,
) -> None:
    """Learns word vectors from conversations, as GloVe does: the baseline that averages words then needs no download.

    Example: `turnwise glove --corpus store --split train --out vectors.txt`, then `turnwise evaluate glove:vectors.txt …`
    """
    from turnwise.corpus.store import read_corpus
    from turnwise.training.word_vectors import train_word_vectors

    with bar() as progress:
        learnt = train_word_vectors(
            read_corpus(*corpus, splits=split or None),
            out,
            size=size,
            window=window,
            least=least,
            epochs=epochs,
            seed=seed,
            progress=progress,
        )
    if as_json:
        print_json({"vectors": str(out), "words": learnt.words, "pairs": learnt.pairs, "losses": list(learnt.losses)})
        return
    rows = [
        ("words", f"{learnt.words:,}, that occur {least} times or more"),
        ("pairs", f"{learnt.pairs:,}"),
        ("loss", f"{learnt.losses[0]:.4f} → {learnt.losses[-1]:.4f}"),
    ]
    print_table(f"[bold]{out}", rows)
