"""Texts that collections share: between stores, test data and the training data of models."""
