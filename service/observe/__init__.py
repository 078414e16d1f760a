"""Answers of models on other servers: received, stored and monitored like those of this service."""
