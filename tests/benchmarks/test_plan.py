"""What is measured: every bar, everybody at every size, and the bars first."""

import itertools

import pytest

from benchmarks import plan
from benchmarks.bars import BARS, Bar
from benchmarks.contestants import CONTESTANTS, REFERENCE
from benchmarks.timing import LEAST_PAIRS

ALL = plan.jobs(plan.Scope())
NAMED = {bar.name: bar for bar in BARS}


def test_every_size_is_measured_for_everybody_with_one_thread_and_with_two():
    measured = {
        (job["b"]["key"], job["values"], job["tensors"], job["threads"])
        for job in ALL
        if job["kind"] == "pair" and job["a"] == {"key": REFERENCE} and "unscale" not in job["b"]
    }
    shapes = set(itertools.product((100_000, 1_000_000, 10_000_000, 50_000_000), (4, 500), (1, 2)))
    for key in set(CONTESTANTS) - {REFERENCE}:
        found = {shape for name, *shape in measured if name == key for shape in [tuple(shape)]}
        assert found == plan.COMPILED_BY_SHAPE.get(key.partition("/")[0], shapes), key


def test_every_dtype_has_a_contestant_of_ours_and_of_each_of_the_others():
    whos = {key.partition("/")[0] for key in CONTESTANTS} - {"ancestor", "ours-split", "ours-unchecked"}
    for who, dtype in itertools.product(whos, ("float32", "float16", "bfloat16")):
        assert f"{who}/{dtype}" in CONTESTANTS


def test_nothing_is_measured_twice():
    names = [plan.identity(job) for job in ALL]
    assert len(names) == len(set(names))


def test_the_bars_come_first():
    of_bars = {plan.identity(job) for bar in BARS for job in plan.jobs_of(bar, plan.Scope())}
    assert {plan.identity(job) for job in ALL[: len(of_bars)]} == of_bars


def test_every_bar_that_times_something_has_15_pairs_at_least():
    pairs = {plan.identity(bar.job) for bar in BARS if bar.kind == "pair"}
    least = [job["least"] for job in ALL if plan.identity(job) in pairs]
    assert len(least) == len(pairs)
    assert min(least) >= LEAST_PAIRS


def test_only_the_bars_and_the_whole_iteration_are_measured_if_that_is_wished():
    few = plan.jobs(plan.Scope(bars_only=True))
    assert len(few) < len(ALL) / 3
    assert {plan.identity(job) for bar in BARS for job in plan.jobs_of(bar, plan.Scope())} <= set(
        map(plan.identity, few)
    )


@pytest.mark.parametrize(
    ("name", "bar", "aim"),
    [
        ("fp16-1e7", 0.9, 1.0),
        ("fp16-5e7", 0.9, 1.0),
        ("fp16-floor-5e7", 0.9, 0.97),
        ("fp16-1e6-500", 2, 3),
        ("fp16-1e5-500", 4, 8),
        ("fp16-1e7-2-threads", 0.8, 1.0),
        ("split-5e7", 0.95, 1.05),
        ("ancestor-4", 2.5, 3),
        ("ancestor-500", 6, 10),
        ("fp32-1e6", 0.9, 1.0),
        ("fp32-1e7", 0.9, 1.0),
        ("fp32-1e6-500", 2, 3),
        ("readable-4", 0.95, 1.2),
        ("readable-500", 0.95, 1.2),
    ],
)
def test_a_speed_has_its_bar_and_its_aim(name, bar, aim):
    assert (NAMED[name].bar, NAMED[name].aim, NAMED[name].more_is_better) == (bar, aim, True)


def test_where_less_is_better_more_does_not_pass():
    first = NAMED["first-step-cold-4"]
    assert (first.verdict(19.9), first.verdict(20.1)) == (True, False)
    assert NAMED["fp16-1e7"].verdict(0.9)
    assert not NAMED["fp16-1e7"].verdict(0.89)
    assert Bar("report", "agreement", {}, None).verdict(1.0) is None


def test_a_step_count_beside_the_state_is_no_byte_a_value():
    bar = NAMED["bytes-in-step-at_rest-4"]
    assert (bar.bar, bar.verdict(12.004), bar.verdict(12.2)) == (12.0, True, False)


def test_in_a_quick_run_all_values_are_few():
    quick = plan.jobs(plan.Scope.small())
    assert {job["values"] for job in quick if "values" in job} == {plan.QUICK_VALUES}
    assert {job["most"] for job in quick if job["kind"] == "pair"} == {2}
