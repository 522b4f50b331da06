"""Many runs: what history keeps of each, in one DuckDB file, and the questions over all of them."""
