"""Sequential tests: evidence that may be looked at after every label."""
