"""Labelling of a map: people name, merge, split and correct groups of utterances, and fit an intent classifier on them.

May import `assist.intents`, `assist.map` and the layers below `assist`.
"""
