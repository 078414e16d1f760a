"""Decisions by p(positive): what an alert threshold does, what it costs, and what a better one would save."""
