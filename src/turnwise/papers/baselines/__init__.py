"""Baselines of the papers: whitening and a normalising flow on an encoder's vectors, and averaged word vectors."""
