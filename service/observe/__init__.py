"""Answers of models that another server serves: sent here, stored, and watched as this service's own."""
