"""Tables of vectors on disk or object storage, and what searches them."""
