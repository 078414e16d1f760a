"""Models of texts: what files beside them say, how many tokens they read, tokenizers tried on hostile texts."""
