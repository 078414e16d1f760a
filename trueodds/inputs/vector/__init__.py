"""Vectors: float32 numbers with names, N x features."""
