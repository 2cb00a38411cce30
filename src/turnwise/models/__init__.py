"""Models: backbones, `Encoder`, `Reranker`, loading by name, identity, the vector cache, compression and export.

May import `core` and `corpus`.
"""
