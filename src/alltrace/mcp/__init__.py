"""A server of the Model Context Protocol: programs get the same answers as from the command line."""
