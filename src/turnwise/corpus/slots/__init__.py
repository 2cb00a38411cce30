"""Slots in utterances: templates, detection of slots that are not annotated, and augmentation by templates (TaDSE)."""
