"""The command line: it calls recipes, shows answers and sets exit codes, and computes nothing itself."""
