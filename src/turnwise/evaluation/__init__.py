"""Evaluation: data sets, tasks, metrics and statistics, results, comparison and reports.

May import `training` and the packages below it. Knows no paper and no application: packages above this one register
their suites (`suites.register_suite`) and protocols (`evaluation_protocols.register_protocol`).
"""
