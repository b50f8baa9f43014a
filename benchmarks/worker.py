"""The process that measures, with one number of threads from beginning to end.

    python -m benchmarks.worker 2

reads a job a line, as JSON, and answers each with a line: `RESULT` and what came of it. A number of threads is part of
what torch compiles, and a contestant that crashes takes its process along: so it isn't the process that writes the
file.
"""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import torch

from benchmarks import agreement, memory
from benchmarks.contestants import MissingError, make
from benchmarks.provenance import available_memory
from benchmarks.timing import Spread, alternate

MARK = "RESULT "
Job = dict[str, Any]


class Bench:
    """Carries out jobs; the first side of a pair stays for the next pair that has the same one."""

    def __init__(self) -> None:
        self.kept: tuple[str, Any] | None = None

    def measure(self, job: Job) -> dict[str, Any]:
        """Return what came of a job: figures, or in `missing` or `failed` the reason why there are none."""
        kinds: dict[str, Callable[[Job], dict[str, Any]]] = {
            "pair": self.pair,
            "memory": self.memory,
            "agreement": self.agreement,
        }
        try:
            return kinds[job["kind"]](job)
        except MissingError as error:
            return {"missing": str(error)}
        except Exception as error:
            last = traceback.extract_tb(error.__traceback__)[-1]
            words = (str(error).splitlines() or [""])[0][:200]
            return {"failed": f"{type(error).__name__}: {words} ({last.name})"}

    def pair(self, job: Job) -> dict[str, Any]:
        """Time two contestants in pairs."""
        values, tensors = job["values"], job["tensors"]
        # Two contestants with FP32 weights, gradients, two moments and what a step computes on the way.
        needed = values * 4 * 12
        if needed > available_memory():
            return {"missing": f"{values:,} values: needs {needed / 2**30:.0f} GiB of free memory"}
        name = json.dumps([job["a"], values, tensors])
        if self.kept is None or self.kept[0] != name:
            self.kept = None
            self.kept = (name, make(job["a"], values, tensors))
        a, b = self.kept[1], make(job["b"], values, tensors)
        how = {name: job[name] for name in ("least", "most", "seconds", "warm_up") if name in job}
        pairs = alternate(a, b, **how)
        factor = job["factor"]
        return {
            "pairs": len(pairs.a),
            "ratio": {name: factor * value for name, value in asdict(pairs.ratio).items()},
            "ratio_of_medians": factor * pairs.ratio_of_medians,
            "seconds": {"a": asdict(Spread.of(pairs.a)), "b": asdict(Spread.of(pairs.b))},
        }

    def memory(self, job: Job) -> dict[str, Any]:
        """Count bytes."""
        self.kept = None
        return memory.bytes_per_value(job["key"], job["values"], job["tensors"], job["unscale"])

    def agreement(self, job: Job) -> dict[str, Any]:
        """Compare the two paths."""
        self.kept = None
        return agreement.differences(job["name"], job["steps"])


def main(threads: int) -> None:
    """Answer jobs until there are no more."""
    torch.set_num_threads(threads)
    bench = Bench()
    for line in sys.stdin:
        print(MARK + json.dumps(bench.measure(json.loads(line))), flush=True)


if __name__ == "__main__":
    try:
        main(int(sys.argv[1]))
    except KeyboardInterrupt:
        sys.exit(130)
