"""Baselines of the papers: whitening and a normalising flow on an encoder's vectors, and averaged word vectors.

Importing this package registers them with `turnwise.models.loading`.
"""

from collections.abc import Sequence
from typing import Any

from turnwise.core.types import SupportsEncode
from turnwise.models.loading import register_loader, register_postprocessor


def _load_glove(path: str) -> Any:
    from turnwise.papers.baselines.glove import GloVe

    return GloVe(path)


def _fit_flow(encoder: SupportsEncode, texts: Sequence[str]) -> Any:
    from turnwise.papers.baselines.flow import FlowPostprocessor

    return FlowPostprocessor(encoder, texts)


def _fit_whitening(encoder: SupportsEncode, texts: Sequence[str]) -> Any:
    from turnwise.papers.baselines.whitening import WhiteningPostprocessor

    return WhiteningPostprocessor(encoder, texts)


register_loader("glove", _load_glove)
register_postprocessor("flow", _fit_flow)
register_postprocessor("whitening", _fit_whitening)
