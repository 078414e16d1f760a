"""Affine maps of the logits: bias-corrected temperature, vector, matrix, their structured forms, and Dirichlet."""
