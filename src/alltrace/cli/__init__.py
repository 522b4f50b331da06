"""The command line: thin; it asks, shows and picks exit codes, and computes nothing itself."""
