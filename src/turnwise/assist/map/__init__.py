"""A map of the utterances of a corpus: dimension reduction, clusters with names, an HTML page and a picture."""
