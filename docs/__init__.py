"""The documentation, and the code that writes its tables."""
