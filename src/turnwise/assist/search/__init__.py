"""Vector tables (LanceDB), exact nearest-neighbour search in memory, and bulk embedding, locally or on a Ray cluster.

May import `evaluation` and the packages below it; nothing else of `assist`.
"""
