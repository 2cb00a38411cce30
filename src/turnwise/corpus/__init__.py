"""Conversations: readers, import, the store, hygiene, statistics, slots and the synthetic sample.

May import `core`.
"""
