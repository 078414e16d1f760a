"""Labels that are chosen, or few: weighing them, and warnings of what they cannot tell."""
