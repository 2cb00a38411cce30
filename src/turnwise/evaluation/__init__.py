"""Evaluation: data sets, tasks, metrics and statistics, results, comparison and reports.

May import `training` and the packages below it. Knows no paper and no application: their suites and tasks are found by
name in `turnwise.core.registry`.
"""
