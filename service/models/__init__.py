"""Models: loading published bundles, batching requests and answering them."""
