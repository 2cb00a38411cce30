"""Evaluation: data sets, tasks, metrics and statistics, results, comparison and reports.

May import `training` and the packages below it. Knows no paper: suites and published values register themselves.
"""
