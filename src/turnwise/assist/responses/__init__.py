"""Response suggestion: a selector over a list in memory, and a responder over a vector table."""
