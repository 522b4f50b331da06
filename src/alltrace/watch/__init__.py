"""A job while it runs: what its record of steps says now, alerts by rules, and metrics for other tools."""
