"""The sub-verbs of `alltrace capture`, one module each."""
