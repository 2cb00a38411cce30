"""Intents that abstain: from a few examples of each to decisions with their reasons."""
