"""Requests and responses in both formats, as they are on the wire."""

from __future__ import annotations

import copy
from typing import Any

LISTED_REQUEST: dict[str, Any] = {
    "model": "gpt-decide",
    "input": "I was charged twice. Please refund one of the payments.",
    "questions": [
        {"type": "predicate", "name": "is_refund", "instructions": "Does the customer want money back?"},
        {
            "type": "choice",
            "name": "queue",
            "instructions": "Which team should answer?",
            "choices": [{"value": "billing", "description": "Payments"}, {"value": "shipping"}, {"value": "other"}],
        },
        {
            "type": "score",
            "name": "urgency",
            "instructions": "How urgent is it?",
            "levels": [{"label": "low"}, {"label": "medium"}, {"label": "high", "description": "Within an hour"}],
        },
        {"type": "predicate", "name": None, "instructions": "Is the customer angry?"},
        {
            "type": "choice",
            "name": "legal",
            "instructions": "Is it legal?",
            "choices": [{"value": True}, {"value": False}],
        },
    ],
}
LISTED_RESPONSE: dict[str, Any] = {
    "model": "gpt-decide-2026-09-01",
    "usage": {"input_tokens": 212, "output_tokens": 0},
    "answers": [
        {"type": "predicate", "name": "is_refund", "probability": 0.93},
        {
            "type": "choice",
            "name": "queue",
            "choice": "billing",
            "confidence": 0.71,
            "probabilities": [
                {"value": "billing", "probability": 0.8},
                {"value": "shipping", "probability": 0.05},
                {"value": "other", "probability": 0.15},
            ],
        },
        {
            "type": "score",
            "name": "urgency",
            "score": 1.3,
            "confidence": 0.2,
            "probabilities": [
                {"value": 0, "label": "low", "probability": 0.2},
                {"value": 1, "label": "medium", "probability": 0.3},
                {"value": 2, "label": "high", "probability": 0.5},
            ],
        },
        {"type": "predicate", "name": None, "probability": 0.4},
        {"type": "refusal", "name": "legal"},
    ],
}
KEYED_REQUEST: dict[str, Any] = {
    "model": "jev-latest",
    "state": {"ticket": "I was charged twice.", "plan": "pro"},
    "questions": {
        "is_refund": {"type": "noul", "instructions": "Does the customer want money back?", "criteria": None},
        "queue": {
            "type": "choice",
            "instructions": "Which team should answer?",
            "criteria": {"shipping": None, "billing": "Payments", "other": None},
        },
        "urgency": {
            "type": "score",
            "instructions": "How urgent is it?",
            "criteria": ["can wait", "today", "within an hour"],
        },
    },
}
KEYED_RESPONSE: dict[str, Any] = {
    "model": "jev-2",
    "usage": {"input_tokens": 180},
    "answers": {
        "is_refund": {"type": "noul", "noul": 0.93, "option_mass": 0.998},
        "queue": {
            "type": "choice",
            "choice": "billing",
            "confidence": 0.71,
            "probabilities": {"billing": 0.8, "shipping": 0.05, "other": 0.15},
            "label_mass": 0.41,
        },
        "urgency": {
            "type": "score",
            "score": 2.3,
            "confidence": 0.2,
            "legend": {"1": "can wait", "2": "today", "3": "within an hour"},
            "probabilities": {"1": 0.2, "2": 0.3, "3": 0.5},
        },
    },
}


def listed() -> tuple[dict[str, Any], dict[str, Any]]:
    """A request and a response of /v1/decisions, to be changed."""
    return copy.deepcopy(LISTED_REQUEST), copy.deepcopy(LISTED_RESPONSE)


def keyed() -> tuple[dict[str, Any], dict[str, Any]]:
    """A request and a response of /v1/systemone, to be changed."""
    return copy.deepcopy(KEYED_REQUEST), copy.deepcopy(KEYED_RESPONSE)
