"""A map of the utterances of a corpus: dimension reduction, clusters with names, an HTML page and a picture.

May import `assist.search` and the layers below `assist`.
"""
