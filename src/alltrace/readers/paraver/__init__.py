"""Reads back the Paraver traces that `alltrace export paraver` writes."""
