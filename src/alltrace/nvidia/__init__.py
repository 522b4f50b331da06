"""The reports, recipes and rules of Nsight Systems under their own names, over all ranks."""
