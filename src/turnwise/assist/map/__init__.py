"""A map of what is said: fewer dimensions, clusters with names, a page and a picture."""
