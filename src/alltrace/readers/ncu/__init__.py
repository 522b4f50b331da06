"""Nsight Compute: reports (`.ncu-rep`) without an installed Nsight Compute."""
