"""Labelling of a map: people name, merge, split and correct groups, and fit an intent classifier on them."""
