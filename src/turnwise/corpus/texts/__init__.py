"""Tables and collections of texts in files."""
