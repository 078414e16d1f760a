"""The machine that trains a net: its device, faster training steps, and several processes."""
