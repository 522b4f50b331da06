"""The page: a local server that hands out what a browser draws. It asks recipes and tiles, and computes nothing itself."""
