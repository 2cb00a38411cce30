"""Baselines of the papers: whitening and a normalising flow on an encoder's vectors, and averaged word vectors.

Importing this package registers them with `turnwise.models.loading`.
"""

from turnwise.models.loading import register_loader, register_postprocessor
from turnwise.papers.baselines.flow import FlowPostprocessor
from turnwise.papers.baselines.glove import GloVe
from turnwise.papers.baselines.whitening import WhiteningPostprocessor

register_loader("glove", GloVe)
register_postprocessor("flow", FlowPostprocessor)
register_postprocessor("whitening", WhiteningPostprocessor)
