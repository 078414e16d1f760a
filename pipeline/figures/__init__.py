"""Diagrams of training and of studies, by matplotlib. They are readable in grey, and identical on every run."""
