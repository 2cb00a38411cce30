"""Training: recipes, the data pipeline, the training loop, checkpoints, distribution and fine-tuning.

May import `core`, `corpus`, `models` and `objectives`.
"""
