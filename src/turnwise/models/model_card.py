"""The texts that describe a model: its short name, and the header of every model card."""

from turnwise.version import __version__


def short_name(model: str) -> str:
    """Return the last part of a model's name or path."""
    return model.rstrip("/").rsplit("/", 1)[-1] or "ours"


def model_card_header(title: str, origin: str, folder: str, reranker: bool = False) -> list[str]:
    """Return the first lines of a model card, as Markdown: what the model is, how it was made, and how it is used.

    `origin` says how the model was made, continuing 'Made with turnwise 1.2'; `folder` is the name of its folder.
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
        f"Made with turnwise {__version__}{origin}.",
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
