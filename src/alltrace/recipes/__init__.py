"""One module per question: tables in, a table out, over all ranks."""
