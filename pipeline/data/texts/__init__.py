"""Texts and trees of words: where they come from, their vocabulary and the vectors of their words."""
