"""Registers the papers' suites with `evaluation`, and their baselines with `models`."""

from functools import partial

from turnwise.evaluation.suites import Suite, register_suite
from turnwise.papers import baselines  # noqa: F401  registers models and post-processors
from turnwise.papers.paper_tables import add_tables
from turnwise.papers.plots import add_plots
from turnwise.papers.suites import PAPER_SUITES


def register() -> None:
    """Register every paper's suite, with its published tables, plots and summaries; repeated calls change nothing."""
    for name, suite in PAPER_SUITES.items():
        register_suite(Suite(name, suite.steps, partial(add_tables, suite), partial(add_plots, name), suite.summaries))
