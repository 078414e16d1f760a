"""Servable models: the folder of one, the folder of many, and the log of what was changed there."""
