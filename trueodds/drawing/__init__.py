"""Drawings in SVG, shared by the report's page, notebooks and the pictures of an evaluation."""
