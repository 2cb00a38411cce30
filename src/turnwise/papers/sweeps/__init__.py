"""Experiments over many models: what changes between them, what they measure, one report of all."""
