"""What has to be reached, row by row, and whether it was.

A row that times something is a pair; its figure is the speed of the second, with the first as 1. The others are bytes,
seconds and differences, where less is better.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from benchmarks.contestants import BF16, FLOOR_BYTES, FP16, FP32, REFERENCE, STREAM, STREAM_BYTES

Side = dict[str, Any]
Kind = Literal["pair", "agreement", "first_step", "memory"]


@dataclass(frozen=True)
class Bar:
    """A row: what is measured, the bar, and the aim beyond it."""

    name: str
    kind: Kind
    job: dict[str, Any]
    bar: float | None
    aim: float | None = None
    more_is_better: bool = True
    figure: str = ""
    """Which figure of the job's result, if it has several."""

    def verdict(self, measured: float) -> bool | None:
        """Tell whether the bar was reached; a row without one only reports."""
        if self.bar is None:
            return None
        if self.kind == "memory":
            measured = round(measured, 1)  # a step count or two beside the state
        return measured >= self.bar if self.more_is_better else measured <= self.bar


def pair(a: str | Side, b: str | Side, values: float, tensors: int, threads: int, factor: float = 1.0) -> Side:
    """Describe a pair: who is timed against whom, and on what."""
    return {
        "kind": "pair",
        "a": {"key": a} if isinstance(a, str) else a,
        "b": {"key": b} if isinstance(b, str) else b,
        "values": int(values),
        "tensors": tensors,
        "threads": threads,
        "factor": factor,
    }


def _memory(key: str, unscale: bool, tensors: int) -> Side:
    return {"kind": "memory", "key": key, "values": 4_000_000, "tensors": tensors, "unscale": unscale, "threads": 1}


def _first(cache: str, tensors: int, key: str) -> Side:
    return {"kind": "first_step", "key": key, "values": 1_000_000, "tensors": tensors, "cache": cache, "threads": 1}


OURS, SPLIT, UNCHECKED = f"ours-fast/{FP16}", f"ours-split/{BF16}", f"ours-unchecked/{FP16}"
ANCESTOR = f"ancestor/{FP16}"
AGREEMENT = {"kind": "agreement", "threads": 1}

BARS = (
    Bar("fp16-1e7", "pair", pair(REFERENCE, OURS, 1e7, 4, 1), 0.9, 1.0),
    Bar("fp16-5e7", "pair", pair(REFERENCE, OURS, 5e7, 4, 1), 0.9, 1.0),
    Bar("fp16-floor-5e7", "pair", pair(STREAM, OURS, 5e7, 4, 1, FLOOR_BYTES / STREAM_BYTES), 0.9, 0.97),
    Bar("fp16-1e6-500", "pair", pair(REFERENCE, OURS, 1e6, 500, 1), 2.0, 3.0),
    Bar("fp16-1e5-500", "pair", pair(REFERENCE, OURS, 1e5, 500, 1), 4.0, 8.0),
    Bar("fp16-1e7-2-threads", "pair", pair(REFERENCE, OURS, 1e7, 4, 2), 0.8, 1.0),
    Bar("split-5e7", "pair", pair(REFERENCE, SPLIT, 5e7, 4, 1), 0.95, 1.05),
    Bar("ancestor-4", "pair", pair(ANCESTOR, OURS, 1e7, 4, 1), 2.5, 3.0),
    Bar("ancestor-500", "pair", pair(ANCESTOR, OURS, 1e6, 500, 1), 6.0, 10.0),
    Bar("fp32-1e6", "pair", pair(REFERENCE, f"ours-fast/{FP32}", 1e6, 4, 1), 0.9, 1.0),
    Bar("fp32-1e7", "pair", pair(REFERENCE, f"ours-fast/{FP32}", 1e7, 4, 1), 0.9, 1.0),
    Bar("fp32-1e6-500", "pair", pair(REFERENCE, f"ours-fast/{FP32}", 1e6, 500, 1), 2.0, 3.0),
    Bar("readable-4", "pair", pair(ANCESTOR, f"ours/{FP16}", 1e7, 4, 1), 0.95, 1.2),
    Bar("readable-500", "pair", pair(ANCESTOR, f"ours/{FP16}", 1e6, 500, 1), 0.95, 1.2),
    # How much of a step the look at the weights takes: 1 less the speed with it, where that without it is 1.
    Bar("check-weights-4", "pair", pair(UNCHECKED, OURS, 1e7, 4, 1), 0.85, 0.97),
    Bar("check-weights-500", "pair", pair(UNCHECKED, OURS, 1e6, 500, 1), 0.85, 0.97),
    Bar("agreement-state", "agreement", AGREEMENT, 2e-6, 0.0, False, "state"),
    Bar("agreement-params", "agreement", AGREEMENT, None, 0.0, False, "params"),
    *(
        Bar(f"first-step-{cache}-{tensors}", "first_step", _first(cache, tensors, OURS), bar, aim, False, "seconds")
        for cache, bar, aim in (("cold", 20.0, 10.0), ("warm", 5.0, 2.0))
        for tensors in (4, 500)
    ),
    *(
        Bar(f"bytes-{name}-{figure}-{tensors}", "memory", _memory(key, unscale, tensors), bar, None, False, figure)
        for name, key, unscale, figure, bar in (
            ("in-step", OURS, False, "at_rest", 12.0),
            ("unscale", OURS, True, "at_rest", 12.0),
            ("unscale", OURS, True, "after_unscale", 14.0),
            ("split-in-step", SPLIT, False, "at_rest", 10.0),
            ("split-unscale", SPLIT, True, "after_unscale", 12.0),
        )
        for tensors in (4, 500)
    ),
)
