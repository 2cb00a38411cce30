"""Types and utilities shared by every package: dialogues, errors, files, progress.

Imports no other package of turnwise.
"""
