"""What is measured of a run, epoch by epoch."""
