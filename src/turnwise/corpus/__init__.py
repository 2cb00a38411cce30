"""Conversations: readers, import, the store, hygiene, statistics, slots and the synthetic sample; imports `core`."""
