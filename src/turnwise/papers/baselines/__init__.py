"""Vectors made of other vectors without labels: whitening, a normalising flow, averaged word vectors; DialogueCSE's baselines."""
