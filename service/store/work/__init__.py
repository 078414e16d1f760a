"""The store's work for any database: SQL, and the computing between its statements."""
