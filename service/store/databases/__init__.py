"""SQLite and PostgreSQL. Each runs the store's work in its own kind of transaction."""
