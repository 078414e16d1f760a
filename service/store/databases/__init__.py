"""SQLite and PostgreSQL: each runs the store's work in transactions of its own kind."""
