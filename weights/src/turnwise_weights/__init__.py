"""The folder of the model turnwise-small, and SHA256SUMS; turnwise loads it by name."""
