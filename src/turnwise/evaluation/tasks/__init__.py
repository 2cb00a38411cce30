"""Tasks: a protocol a file."""
