"""The parts of the verb `logs`: one module for each kind of log."""
