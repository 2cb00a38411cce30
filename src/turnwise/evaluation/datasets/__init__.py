"""Data sets to measure on, read from their authors' layouts."""
