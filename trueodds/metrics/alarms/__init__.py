"""Alarms: sequential tests that stay valid after every label, for any number of looks."""
