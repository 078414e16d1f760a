"""Drawings in SVG: one code for the page, for a notebook's cell, and for the pictures of the evaluation."""
