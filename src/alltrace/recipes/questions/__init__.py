"""One module per question, by the name that users type."""
