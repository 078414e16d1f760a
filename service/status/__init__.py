"""The state of the service: health, models, metrics, and where its address leads."""
