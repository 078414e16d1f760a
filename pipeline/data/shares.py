"""Splits that a recipe of a paper has, where params.yaml names no sizes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Shares:
    """Of the rows that are not for test: the shares of validation, and of those set aside to learn from."""

    validation: float
    held_out: float


OF_RECIPES = {"gamma-net": Shares(validation=0.1, held_out=0.1)}
"""The gamma-net paper, section 5: 8:1:1."""
