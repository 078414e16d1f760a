"""Shares in words."""

from __future__ import annotations

from trueodds.texts import plural


def percent(share: float) -> str:
    """Whole percents, but never a rounded 100% or 0% for what is not."""
    digits = 1 if 0 < share < 0.01 or 0.99 < share < 1 else 0
    text = f"{100 * share:.{digits}f}%"
    return {"100.0%": "over 99.9%", "0.0%": "under 0.1%"}.get(text, text)


def told_apart(*shares: float) -> list[str]:
    """Different shares in percent, with as few digits as tell them apart, and never a rounded 0% or 100%."""
    for digits in range(4):
        texts = [f"{100 * share:.{digits}f}%" for share in shares]
        ends = {f"{end:.{digits}f}%": end / 100 for end in (0, 100)}
        if len(set(texts)) == len(texts) and all(ends.get(t, s) == s for t, s in zip(texts, shares, strict=True)):
            break
    return texts


def labelled(count: int, answers: int) -> str:
    """3 of 10 answers have labels; 1 of 10 answers has a label"""
    return f"{count:,} of {plural(answers, 'answer')} {'has a label' if count == 1 else 'have labels'}"
