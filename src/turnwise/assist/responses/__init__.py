"""What may be said next: selected in memory, or suggested from a table."""
