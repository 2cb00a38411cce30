"""Reproduction of the papers: suites, published tables, plots, sweeps and baselines; above `evaluation`."""
