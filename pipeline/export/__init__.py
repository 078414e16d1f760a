"""Export of a trained net as a bundle, in float32 or quantised to int8."""
