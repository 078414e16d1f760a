"""The machine a net is trained on: its device, what makes a step faster there, and the processes that share it."""
