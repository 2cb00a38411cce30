"""Model cards: what every one of them begins with."""

from turnwise.version import __version__


def card_lines(title: str, made: str, folder: str, reranker: bool = False) -> list[str]:
    """A card's first lines, as Markdown: what the model is, what it was made of, and how it is used.

    Args:
        title: what it is.
        made: how, going on from 'Made with turnwise 1.2'.
        folder: the name of the model's folder.
        reranker: whether it is a re-ranker, and no encoder.
    """
    kind, peer = ("Reranker", "CrossEncoder") if reranker else ("Encoder", "SentenceTransformer")
    use = 'score(["hi", "where is my parcel?"], ["On its way."])' if reranker else 'encode(["where is my parcel?"])'
    return [
        "---",
        "library_name: sentence-transformers",
        f"pipeline_tag: {'text-ranking' if reranker else 'sentence-similarity'}",
        "tags: [turnwise, dialogue, sentence-transformers]",
        "---",
        "",
        f"# {title}",
        "",
        f"Made with turnwise {__version__}{made}.",
        "",
        "```python",
        f"from turnwise import {kind}",
        "",
        f'{"scores" if reranker else "vectors"} = {kind}.load("{folder}").{use}',
        "```",
        "",
        f"`{peer}` from sentence-transformers loads the folder too.",
        "",
    ]
