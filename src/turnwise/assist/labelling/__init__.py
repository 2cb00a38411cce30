"""Labelling of a map: people name, merge, split and correct groups of utterances, and fit an intent classifier on them."""
