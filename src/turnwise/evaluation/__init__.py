"""Evaluation: data sets, tasks by the papers' own protocols, figures with intervals, reports."""
