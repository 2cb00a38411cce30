"""The folders of the models turnwise-small and turnwise-reranker, and SHA256SUMS; turnwise loads them by name."""
