"""The reports of `nsys stats`, column for column, over all ranks."""
