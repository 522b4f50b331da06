"""The page: a local server with the data that a browser draws. It calls recipes and tiles, and computes nothing."""
