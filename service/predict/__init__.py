"""POST /predict."""
