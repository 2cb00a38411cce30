"""Reproduction of the papers: suites, published tables, plots, sweeps and baselines.

May import `evaluation` and the packages below it.
"""
