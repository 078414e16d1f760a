"""What a run begins with: weights of its own drawing, or given ones (`training.start`), and which of them learn."""
