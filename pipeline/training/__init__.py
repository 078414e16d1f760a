"""The training loop and its parts. `pipeline.training.loop.train` is the entry."""
