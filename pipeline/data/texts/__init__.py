"""Data sets of texts and trees of words: their sources, vocabulary and word vectors."""
