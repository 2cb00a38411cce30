"""The ways of post-processing an encoder's vectors, by name."""

from collections.abc import Sequence
from typing import Any

from turnwise.core.types import SupportsEncode
from turnwise.papers.baselines.flow import Flowed
from turnwise.papers.baselines.vectors import PostprocessingError
from turnwise.papers.baselines.whitening import Whitened

KINDS: dict[str, type[Whitened] | type[Flowed]] = {"whitening": Whitened, "flow": Flowed}


def postprocess(
    encoder: SupportsEncode, kind: str, texts: Sequence[Any], *, max_length: int | None = None
) -> Whitened | Flowed:
    """An encoder whose vectors are post-processed in a way's usual setting, fitted on some texts.

    Args:
        encoder: gives the vectors.
        kind: 'whitening' or 'flow'.
        texts: what is fitted on; never those of a test set, unless the protocol says so.
        max_length: where the texts are cut, as for `encode`.

    Raises:
        PostprocessingError: if there is no such kind, or the texts' vectors cannot be fitted on.
    """
    if kind not in KINDS:
        raise PostprocessingError(f"there is no post-processing {kind!r}: choose from {', '.join(KINDS)}")
    return KINDS[kind](encoder, texts, max_length=max_length)
