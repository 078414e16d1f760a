"""The verdict of a report and its words: how things stand, and what to keep in mind."""
