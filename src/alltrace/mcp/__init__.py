"""A server of the Model Context Protocol: programs that ask questions in words get the answers that the command line gives."""
