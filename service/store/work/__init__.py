"""The store's work for any database: SQL and the computation between its statements."""
