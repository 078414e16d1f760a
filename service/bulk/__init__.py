"""Rows in bulk, of labels and of observations alike: read as they come, stored block by block, each accounted for."""
