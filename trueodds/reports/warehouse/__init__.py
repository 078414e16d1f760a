"""Sums of a table of answers, made by the engine that holds the table, as one Ibis expression (extra `warehouse`)."""
