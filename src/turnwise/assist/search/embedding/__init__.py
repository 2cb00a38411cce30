"""Vectors of many texts: written to a file by one process, or to a table by the workers of a Ray cluster."""
