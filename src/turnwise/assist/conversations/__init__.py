"""Whole conversations: a vector each, the ones alike, clusters."""
