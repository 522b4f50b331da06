"""The run directory: making one from reports, opening one, and who is which rank."""
