"""Readers: a file per source layout, and the registry that names them."""
