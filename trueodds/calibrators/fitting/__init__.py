"""What the fits of calibrators minimise, and how."""
