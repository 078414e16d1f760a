"""From a trained net to a bundle: in float32, and quantised."""
