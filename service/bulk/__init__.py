"""Bulk rows of labels and observations: read as they arrive, stored in blocks, and reported one by one."""
