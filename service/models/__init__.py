"""From the model directory to answers."""
