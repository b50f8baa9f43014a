"""The first step of a process, what it compiles included.

    python -m benchmarks.compiling ours-fast/float16 1000000 4

prints its seconds and those of the second step. torch is loaded before the clock starts, the compiler is not. Whether
the cache is cold or warm is decided by whoever starts the process: `TORCHINDUCTOR_CACHE_DIR` in its environment.
"""

from __future__ import annotations

import json
import sys
import time

import torch

from benchmarks.contestants import Stepping


def first_step(key: str, values: int, tensors: int) -> dict[str, float]:
    """Return the seconds of the first step and of the second."""
    stepping = Stepping(key, values, tensors)
    times = []
    for _ in range(2):
        begun = time.perf_counter()
        stepping.run()
        times.append(time.perf_counter() - begun)
    return {"seconds": times[0], "second_step": times[1]}


if __name__ == "__main__":
    torch.set_num_threads(1)
    print(json.dumps(first_step(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))))
