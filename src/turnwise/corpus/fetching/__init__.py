"""Downloading public corpora from their authors."""
