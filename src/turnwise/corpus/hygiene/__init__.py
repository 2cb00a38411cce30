"""Cleaning steps for dialogues: markup, e-mail quotes, automatic messages, duplicates and personal data."""
