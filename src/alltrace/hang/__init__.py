"""Jobs that hang or died: what they leave becomes one sentence, with the ranks that are responsible."""
