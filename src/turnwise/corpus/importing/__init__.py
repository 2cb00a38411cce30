"""Importing logs: recognise the format, read, clean, divide into splits, and add to an existing store."""
