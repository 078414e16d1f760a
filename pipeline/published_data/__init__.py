"""Published predictions with known outcomes: records of real nets, and dated forecasts of games."""
