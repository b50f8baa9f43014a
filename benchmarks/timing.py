"""Two things timed in alternation, so that whatever else the machine does hits both of them.

A clock of a shared machine drifts by tens of percent within a minute. A ratio of two medians taken one after the other
drifts with it; a ratio of two neighbours hardly does. So a measurement here is a list of pairs, A then B, B then A, and
what is reported is the median of the pairs' ratios, with its quartiles.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

Clock = Callable[[], float]
Count = Callable[[], None]

LEAST_PAIRS = 15
WARM_UP = 2
BURST = 0.004
"""Seconds that a burst lasts at least: one step over 100,000 values is over before a clock can tell."""
LONGEST_BURST = 64


class Timed(Protocol):
    """What can be timed: `prepare` is not, `run` is."""

    def prepare(self) -> None:
        """Make ready for one run."""

    def run(self) -> None:
        """Do what is timed."""


@dataclass(frozen=True)
class Spread:
    """A median and its quartiles."""

    median: float
    q1: float
    q3: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """Return the spread of some values, at least one; quartiles between two values are interpolated."""
        if len(values) == 1:
            return cls(values[0], values[0], values[0])
        q1, median, q3 = statistics.quantiles(values, n=4, method="inclusive")
        return cls(median, q1, q3)


@dataclass(frozen=True)
class Pairs:
    """Seconds a step of A and of B, pair by pair."""

    a: list[float]
    b: list[float]

    @property
    def ratio(self) -> Spread:
        """Return how fast B is, with A as 1: more is faster."""
        return Spread.of([a / b for a, b in zip(self.a, self.b, strict=True)])

    @property
    def ratio_of_medians(self) -> float:
        """Return the same from the two medians; far from `ratio`, the machine was restless."""
        return statistics.median(self.a) / statistics.median(self.b)


def burst(timed: Timed, steps: int, clock: Clock = time.perf_counter) -> float:
    """Return the seconds a run takes, on the average of `steps` of them; what `prepare` takes doesn't count."""
    spent = 0.0
    for _ in range(steps):
        timed.prepare()
        begun = clock()
        timed.run()
        spent += clock() - begun
    return spent / steps


def steps_in_a_burst(seconds: float) -> int:
    """Return how many runs of `seconds` make a burst that a clock can measure."""
    return max(1, min(LONGEST_BURST, math.ceil(BURST / max(seconds, 1e-9))))


def alternate(
    a: Timed,
    b: Timed,
    *,
    least: int = LEAST_PAIRS,
    most: int = LEAST_PAIRS,
    seconds: float = math.inf,
    warm_up: int = WARM_UP,
    clock: Clock = time.perf_counter,
) -> Pairs:
    """Time A and B in pairs, first the one, then the other, and the other way round in every second pair.

    * `least` pairs are timed in any case, `most` at the most, and those between while `seconds` are not over

    Both run a few times before, untimed (`warm_up`, and once to see how long they take): compilers compile, state is
    made, memory is touched.
    """
    for timed in (a, b):
        burst(timed, warm_up, clock)
    steps = [steps_in_a_burst(burst(timed, 1, clock)) for timed in (a, b)]
    pairs = Pairs([], [])
    begun = clock()
    while len(pairs.a) < least or (len(pairs.a) < most and clock() - begun < seconds):
        sides = [(a, steps[0], pairs.a), (b, steps[1], pairs.b)]
        for timed, count, times in reversed(sides) if len(pairs.a) % 2 else sides:
            times.append(burst(timed, count, clock))
    return pairs
