"""Detectors: slots found in utterances that nobody annotated, so that templates can be made of them."""
