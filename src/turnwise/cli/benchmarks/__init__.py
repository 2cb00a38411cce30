"""The benchmarks of `turnwise bench`: each compares turnwise with a peer in one run and reports ratios."""
