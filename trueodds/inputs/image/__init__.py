"""Images: uint8 pixels, N x height x width x channels."""
