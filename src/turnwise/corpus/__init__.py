"""Conversations in: read from any common form, validated, cleaned, stored, counted."""
