"""What the store does, as SQL and the computing between its statements, for any database."""
