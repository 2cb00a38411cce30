"""Benchmarks: turnwise beside what people use today, in one run, as ratios; a file a benchmark."""
