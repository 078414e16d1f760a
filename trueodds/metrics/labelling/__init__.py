"""What labels that are chosen, or few, can tell."""
