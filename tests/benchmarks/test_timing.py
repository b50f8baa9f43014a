"""Pairs alternate, and ratios and quartiles are those of the times, on a clock that only the timed things move."""

import statistics

import pytest

from benchmarks import timing
from benchmarks.timing import Pairs, Spread, alternate, burst, steps_in_a_burst


class Clock:
    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


class Thing:
    """Takes the given seconds, run by run (the last ones again and again), and writes down that it ran."""

    def __init__(self, name, clock, seconds, log, preparing=0.0):
        self.name, self.clock, self.seconds, self.log, self.preparing = name, clock, list(seconds), log, preparing

    def prepare(self):
        self.clock.now += self.preparing

    def run(self):
        self.clock.now += self.seconds.pop(0) if len(self.seconds) > 1 else self.seconds[0]
        self.log.append(self.name)


@pytest.fixture
def clock():
    return Clock()


def test_every_second_pair_begins_with_the_other_one(clock):
    log = []
    a, b = Thing("a", clock, [1.0], log), Thing("b", clock, [1.0], log)
    alternate(a, b, least=4, most=4, clock=clock)
    warm_up = log[: 2 * timing.WARM_UP + 2]
    assert "".join(log[len(warm_up) :]) == "abbaabba"


def test_the_ratio_is_how_fast_the_second_is_when_the_first_is_1(clock):
    a, b = Thing("a", clock, [3.0], []), Thing("b", clock, [1.5], [])
    pairs = alternate(a, b, least=5, most=5, clock=clock)
    assert pairs.ratio == Spread(2.0, 2.0, 2.0)
    assert pairs.ratio_of_medians == 2.0


def test_a_machine_that_slows_down_does_not_change_the_ratio_of_neighbours():
    """Slower by 10% from pair to pair: the medians of two runs, one after the other, would be far apart."""
    speeds = [1.1**k for k in range(15)]
    pairs = Pairs([2 * speed for speed in speeds], speeds)
    assert pairs.ratio.median == pytest.approx(2)
    assert statistics.median(speeds[8:]) / statistics.median(speeds[:8]) > 1.9


def test_the_quartiles_are_those_of_the_pairs():
    ratios = [0.9, 1.0, 1.1, 1.2, 1.3]
    assert Pairs(ratios, [1.0] * 5).ratio == Spread(1.1, 1.0, 1.2)
    assert Spread.of([1.0, 2.0]) == Spread(1.5, 1.25, 1.75)
    assert Spread.of([7.0]) == Spread(7.0, 7.0, 7.0)


def test_what_comes_before_the_pairs_is_not_in_them(clock):
    """The first runs compile and make state; they take 100 seconds here."""
    a, b = Thing("a", clock, [100.0] * timing.WARM_UP + [1.0], []), Thing("b", clock, [100.0, 1.0], [])
    pairs = alternate(a, b, least=3, most=3, clock=clock)
    assert pairs == Pairs([1.0] * 3, [1.0] * 3)


def test_preparing_is_not_timed(clock):
    assert burst(Thing("a", clock, [2.0], [], preparing=50.0), 4, clock) == 2.0


def test_short_runs_are_timed_in_bursts_long_enough_for_a_clock(clock):
    assert steps_in_a_burst(1.0) == 1
    assert steps_in_a_burst(0.0025) == 2
    assert steps_in_a_burst(1e-9) == timing.LONGEST_BURST
    log = []
    alternate(Thing("a", clock, [2**-9], log), Thing("b", clock, [1.0], log), least=2, most=2, clock=clock)
    assert "".join(log[2 * timing.WARM_UP + 2 :]) == "aaab" + "baaa"


def test_pairs_beyond_the_least_are_timed_while_there_is_time(clock):
    def count(seconds):
        a, b = Thing("a", clock, [1.0], []), Thing("b", clock, [1.0], [])
        return len(alternate(a, b, least=3, most=10, seconds=seconds, clock=clock).a)

    assert [count(1.0), count(10.0), count(1000.0)] == [3, 5, 10]


def test_a_bar_is_judged_on_at_least_15_pairs():
    assert timing.LEAST_PAIRS >= 15
