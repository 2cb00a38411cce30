"""Vector tables (LanceDB), exact nearest-neighbour search in memory, and bulk embedding, local or on Ray."""
