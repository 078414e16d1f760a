"""Models of texts: statements of the files beside them, tokenizers tried on hostile texts."""
