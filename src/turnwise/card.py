"""Model cards: what every one of them begins with."""

from turnwise.version import __version__


def card_lines(title: str, made: str, folder: str) -> list[str]:
    """A card's first lines, as Markdown: what the model is, what it was made of, and how it is used.

    Args:
        title: what it is.
        made: how, going on from 'Made with turnwise 1.2'.
        folder: the name of the model's folder.
    """
    return [
        "---",
        "library_name: sentence-transformers",
        "pipeline_tag: sentence-similarity",
        "tags: [turnwise, dialogue, sentence-transformers]",
        "---",
        "",
        f"# {title}",
        "",
        f"Made with turnwise {__version__}{made}.",
        "",
        "```python",
        "from turnwise import Encoder",
        "",
        f'vectors = Encoder.load("{folder}").encode(["where is my parcel?"])',
        "```",
        "",
        "`SentenceTransformer` from sentence-transformers loads the folder too.",
        "",
    ]
