"""Scripts that are written for others to run."""
