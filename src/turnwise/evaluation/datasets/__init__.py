"""Evaluation data sets: descriptions in `datasets.yaml`, and readers of their authors' layouts."""
