"""Kinds of input: how they are read and checked."""
