"""Texts as inputs."""
