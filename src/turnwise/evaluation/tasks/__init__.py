"""Evaluation tasks: functions from a model and a data set to metrics with per-example outcomes."""
