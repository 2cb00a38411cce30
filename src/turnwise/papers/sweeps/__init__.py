"""Experiments with many models: hyperparameter sweeps, variants of a method, and soups of two models."""
