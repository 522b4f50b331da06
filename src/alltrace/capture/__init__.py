"""Capture: plans and wraps profilers under any launcher. Knows nothing of traces; stands beside the rest of the house."""
