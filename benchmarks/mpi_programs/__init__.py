"""Real MPI programs with a record of their own, and what that record says of a recording."""
