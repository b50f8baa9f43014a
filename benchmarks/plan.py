"""What is measured, in which order: the bars first, then the whole iteration, then everybody at every size."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from benchmarks import agreement
from benchmarks.bars import BARS, Bar, pair
from benchmarks.contestants import BF16, CONTESTANTS, FLOOR_BYTES, FP16, REFERENCE, STREAM, STREAM_BYTES
from benchmarks.timing import LEAST_PAIRS

Job = dict[str, Any]

SIZES = (100_000, 1_000_000, 10_000_000, 50_000_000)
TENSORS = (4, 500)
THREADS = (1, 2)
QUICK_VALUES = 2000
COMPILED_BY_SHAPE = {"torchao": {(1_000_000, 500, 1), (10_000_000, 4, 1)}}
"""It compiles for every shape anew, which takes longer than all that it is measured for; so it is at two of them."""


@dataclass(frozen=True)
class Scope:
    """How much is measured."""

    sizes: tuple[int, ...] = SIZES
    tensors: tuple[int, ...] = TENSORS
    threads: tuple[int, ...] = THREADS
    bars_only: bool = False
    quick: bool = False

    @classmethod
    def small(cls) -> Scope:
        """Return what is tried in a few seconds; its figures mean nothing."""
        return cls(sizes=(QUICK_VALUES,), threads=(1,), quick=True)


def identity(job: Job) -> str:
    """Return what makes a job the same as another: all but how long it may take."""
    return json.dumps({key: value for key, value in job.items() if key not in ("least", "most", "seconds", "warm_up")})


def jobs(scope: Scope) -> list[Job]:
    """Return everything to measure, each thing once: stage by stage, in each stage one number of threads at a time."""
    stages = [
        [job for bar in BARS for job in jobs_of(bar, scope)],
        [*_bandwidth(scope), *_iterations(scope)],
        [] if scope.bars_only else list(_everybody(scope)),
    ]
    once: dict[str, Job] = {}
    for stage in stages:
        for job in sorted(stage, key=lambda job: (job["threads"], job["kind"] == "first_step")):
            if job["threads"] in scope.threads:
                once.setdefault(identity(job), job)
    return list(once.values())


def jobs_of(bar: Bar, scope: Scope) -> list[Job]:
    """Return the jobs that a bar's figure comes from."""
    if bar.kind == "pair":
        return [_careful(_shrunk(bar.job, scope), scope)]
    if bar.kind == "agreement":
        steps = 3 if scope.quick else agreement.STEPS
        return [{**bar.job, "name": name, "steps": steps} for name in agreement.classes()]
    return [_shrunk(bar.job, scope)]


def _careful(job: Job, scope: Scope) -> Job:
    pairs = {"least": 2, "most": 2} if scope.quick else {"least": LEAST_PAIRS, "most": 41, "seconds": 3.0}
    return {**job, **pairs}


def _shrunk(job: Job, scope: Scope) -> Job:
    """Make a job quick: the same thing on few values."""
    return {**job, "values": QUICK_VALUES} if scope.quick else job


def _bandwidth(scope: Scope) -> Iterable[Job]:
    for threads in scope.threads:
        yield _careful(
            _shrunk(pair(STREAM, REFERENCE, SIZES[-1], 4, threads, FLOOR_BYTES / STREAM_BYTES), scope), scope
        )


UNSCALE_AND_CLIP = {"unscale": True, "clip": True}
IN_STEP = {"unscale": False, "clip": False}


def _iterations(scope: Scope) -> Iterable[Job]:
    """The whole iteration against the bare step, and against torch's whole iteration in FP32."""
    for values, tensors in ((10_000_000, 4), (1_000_000, 500)):
        for passes in (UNSCALE_AND_CLIP, IN_STEP):
            whole = {"key": REFERENCE, **passes}
            for key in (f"ours-fast/{FP16}", f"ours/{FP16}", f"ours-fast/{BF16}"):
                ours = {"key": key, **passes}
                if key.startswith("ours-fast"):
                    yield _careful(_shrunk(pair(whole, ours, values, tensors, 1), scope), scope)
                if key.endswith(FP16):
                    yield _careful(_shrunk(pair(key, ours, values, tensors, 1), scope), scope)
            yield _careful(_shrunk(pair(REFERENCE, whole, values, tensors, 1), scope), scope)


def _everybody(scope: Scope) -> Iterable[Job]:
    """Every contestant at every size, against torch's fused Adam in FP32 on as many values."""
    pairs = {"least": 2, "most": 2} if scope.quick else {"least": 3, "most": LEAST_PAIRS, "seconds": 0.5, "warm_up": 1}
    for values, tensors, threads in itertools.product(scope.sizes, scope.tensors, scope.threads):
        for key in CONTESTANTS:
            shapes = COMPILED_BY_SHAPE.get(key.partition("/")[0])
            if key != REFERENCE and (shapes is None or (values, tensors, threads) in shapes):
                yield {**pair(REFERENCE, key, values, tensors, threads), **pairs}
