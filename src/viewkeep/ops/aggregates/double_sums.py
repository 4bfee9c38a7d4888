"""Sums of doubles as unevaluated pairs (high + low), which rounding does not wear away.

Law: a pair is made by `math.fsum`, which rounds once and does not depend on the order of its terms.
If a sum leaves the range, high is an infinity and low the sum divided by BEYOND, so it can come
back. A pair of nothing is exactly zero.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction
from math import fsum, inf, isinf

from viewkeep.deferred import pl

BEYOND = 1 << 70  # more than the number of rows that a sum can have


def with_pair(frame: pl.DataFrame, high: str, low: str) -> pl.DataFrame:
    """The frame with its lists of terms (highs and, if there are any, their lows) summed up."""
    terms = frame[high].to_list()
    if low in frame.columns:
        terms = [a + b for a, b in zip(terms, frame[low].to_list(), strict=True)]
    highs, lows = _pairs(terms)
    return frame.with_columns(pl.Series(high, highs, pl.Float64), pl.Series(low, lows, pl.Float64))


def advance_pair(
    old: pl.DataFrame, gain: pl.DataFrame, count: pl.Series, high: str, low: str
) -> list[pl.Series]:
    """The pair after adding `gain` to `old`, row by row; zero where nothing is counted any more."""
    columns = (old[high], gain[high], old[low], gain[low])
    terms = list(zip(*(column.fill_null(0.0).to_list() for column in columns), strict=True))
    highs, lows = _pairs(terms)
    # A group without values starts afresh, so no rounding survives it.
    blank = [n == 0 for n in count.to_list()]
    highs = [0.0 if empty else value for empty, value in zip(blank, highs, strict=True)]
    lows = [0.0 if empty else value for empty, value in zip(blank, lows, strict=True)]
    return [pl.Series(high, highs, pl.Float64), pl.Series(low, lows, pl.Float64)]


def _pairs(terms: Iterable[Sequence[float]]) -> tuple[list[float], list[float]]:
    """Each sequence of terms as (high, low). Python's fsum: 30-50 ns a term, and exact.

    The terms are finite values, or highs followed by as many lows.
    """
    highs, lows = [], []
    for group in terms:
        high, low = pair(group)
        highs.append(high)
        lows.append(low)
    return highs, lows


def pair(terms: Sequence[float]) -> tuple[float, float]:
    """Finite values, or highs followed by as many lows, as (high, low)."""
    try:
        high = fsum(terms)
        return high, fsum((*terms, -high))
    except (OverflowError, ValueError):  # a sum is out of range, or a partial sum left it
        return _exact_pair(terms)


def _exact_pair(terms: Sequence[float]) -> tuple[float, float]:
    """What `pair` makes of terms whose sum is, or may be, out of range."""
    half = len(terms) // 2
    exact = Fraction(0)
    for place, term in enumerate(terms):
        if isinf(term):
            exact += Fraction(terms[place + half]) * BEYOND
        elif place < half or not isinf(terms[place - half]):
            exact += Fraction(term)
    try:
        high = float(exact)
    except OverflowError:
        return (inf if exact > 0 else -inf), float(exact / BEYOND)
    return high, float(exact - Fraction(high))
