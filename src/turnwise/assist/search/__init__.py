"""Vector tables (LanceDB), exact nearest-neighbour search in memory, and bulk embedding, locally or on a Ray cluster."""
