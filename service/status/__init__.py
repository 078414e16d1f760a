"""State of the service: health, models, metrics, and the redirect of its root path."""
