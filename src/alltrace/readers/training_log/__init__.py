"""Reader of the step lines of training frameworks."""
