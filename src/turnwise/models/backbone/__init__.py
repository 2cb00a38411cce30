"""Transformer backbones: any Hugging Face encoder, run over a flat stream of tokens without padding; exported models.

May import `core`.
"""
