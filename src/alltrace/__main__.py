"""`python -m alltrace` is the command `alltrace`."""

from alltrace.cli.start import command

command()
