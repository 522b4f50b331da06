"""Capture: plans and wraps profilers under any launcher. It does not read traces."""
