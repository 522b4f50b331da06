"""The benchmarks: side by side with the peers, medians of several runs, ratios."""
