"""How fast the optimizers were when they were measured: drawn from the benchmarks' stored file, nothing is run."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from labml_opt._figures.svg import Drawing, Ink, Plot, linear, logarithmic, scientific
from labml_opt._figures.words import Words

FILE = "benchmarks/results.json"
REFERENCE = "torch-fused/float32"
STREAM = "stream/float32"
# From the back to the front; the last one lies on all others.
SHOWN: tuple[tuple[str, Ink], ...] = (
    ("torch-loop/float32", "tick"),
    ("torch-foreach/float32", "soft"),
    ("ancestor/float16", "lost"),
    ("ours/float16", "ink"),
    ("ours-fast/float16", "kept"),
)
ROW = 26


@dataclass(frozen=True)
class Ratios:
    """Speeds beside torch's fused Adam in FP32 on as many values with one thread: median and quartiles, by size."""

    shapes: list[tuple[int, int]]
    speeds: dict[tuple[str, int, int], tuple[float, float, float]]

    def of(self, key: str) -> list[float]:
        """Return the medians of one contestant, as far as there are any."""
        return [median for (name, _, _), (median, _, _) in self.speeds.items() if name == key]


def stored(path: Path | None = None) -> dict[str, Any]:
    """Read the stored file."""
    path = path or Path(__file__).resolve().parents[2] / FILE
    if not path.is_file():
        raise FileNotFoundError(f"{path} is not there: `python3 tasks.py bench` measures it")
    whole: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return whole


def origin(path: Path) -> tuple[str, str, str]:
    """Return the machine, the version of torch and the command of what is stored; dashes if nothing can be read."""
    try:
        told = json.loads(path.read_text(encoding="utf-8"))["provenance"]
        return f"{told['machine']['cpu']}, 1 thread", told["torch"], told["command"]
    except (OSError, ValueError, KeyError, TypeError):
        return "–", "–", "–"


def plain(whole: dict[str, Any]) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Yield each job that timed a bare step beside that of the reference with one thread, and its record."""
    for record in whole["results"]:
        job = record["job"]
        beside = job["kind"] == "pair" and job["a"] == {"key": REFERENCE} and job["b"].keys() == {"key"}
        if beside and job["threads"] == 1 and "ratio" in record:
            yield job, record


def ratios(path: Path | None = None) -> Ratios:
    """Read the speeds from the stored file."""
    speeds = {}
    for job, record in plain(stored(path)):
        ratio = record["ratio"]
        speeds[job["b"]["key"], job["values"], job["tensors"]] = (ratio["median"], ratio["q1"], ratio["q3"])
    shapes = {(tensors, values) for _, values, tensors in speeds}
    return Ratios([(values, tensors) for tensors, values in sorted(shapes)], speeds)


def floors(path: Path | None = None) -> dict[tuple[str, int, int], float]:
    """
    Return how many times the floor a step takes, by contestant, number of values and number of tensors.

    The floor is the time in which `a.add_(b)` on the largest tensors moves as many bytes as Adam has to. It was timed
    in turn with torch's fused Adam, and so was each contestant at each size. What leads from one size to another is the
    time of torch's fused Adam, the median of all that were taken there.
    """
    whole = stored(path)
    seconds: dict[tuple[int, int], list[float]] = {}
    for job, record in plain(whole):
        seconds.setdefault((job["values"], job["tensors"]), []).append(record["seconds"]["a"]["median"])
    reference = {shape: median(found) / shape[0] for shape, found in seconds.items()}
    for record in whole["results"]:
        job = record["job"]
        streamed = job["kind"] == "pair" and job["a"]["key"] == STREAM and job["b"] == {"key": REFERENCE}
        shape = (job.get("values"), job.get("tensors"))
        if streamed and job["threads"] == 1 and "ratio" in record and shape in reference:
            floor = reference[shape] * record["ratio"]["median"]
            break
    else:
        return {}
    times = {(REFERENCE, *shape): time / floor for shape, time in reference.items()}
    for job, record in plain(whole):
        shape = job["values"], job["tensors"]
        times[(job["b"]["key"], *shape)] = reference[shape] / floor / record["ratio"]["median"]
    return times


def fast_ratios(words: Words) -> Drawing:
    """Draw a row for each size, with a mark for each optimizer where its speed is."""
    data = ratios()

    def ends(key: str) -> tuple[str, str]:
        speeds = data.of(key)
        return (f"{min(speeds):.2g}", f"{max(speeds):.2g}") if speeds else ("–", "–")

    numbers = {}
    for name, key in (("fast", "ours-fast/float16"), ("plain", "ours/float16"), ("old", "ancestor/float16")):
        numbers[f"{name}_low"], numbers[f"{name}_high"] = ends(key)
    title = words(
        "Speeds of optimizers at {count} sizes, with one thread; torch's fused Adam in FP32 is 1. AdamFP16 with the "
        "fast path is at {fast_low} to {fast_high}, its readable loop at {plain_low} to {plain_high}, the AdamFP16 it "
        "comes from at {old_low} to {old_high}.",
        count=len(data.shapes),
        **numbers,
    )
    names = {
        "torch-loop/float32": words("torch's loop, FP32"),
        "torch-foreach/float32": words("torch foreach, FP32"),
        "ancestor/float16": words("labml_nn, FP16"),
        "ours/float16": words("AdamFP16, readable"),
        "ours-fast/float16": words("AdamFP16, fast"),
    }
    top, bottom = 112, 112 + ROW * len(data.shapes)
    drawing = Drawing("fast_ratios", 420, bottom + 28, title)
    low, high = 0.05, 20.0
    plot = Plot(drawing, (122, top, 412, bottom), logarithmic(low, high), linear(0, 1))
    drawing.text(0, 16, words("speed; torch's fused Adam in FP32 is 1"))
    for place, (key, ink) in enumerate(reversed(SHOWN)):
        column, line = place % 2, place // 2
        x, y = 8 + 210 * column, 44 + 22 * line
        mark(drawing, x, y - 4.5, key, ink)
        drawing.text(x + 14, y, names[key], ink if ink in ("kept", "lost") else "soft")
    plot.axis([(x, f"{x:g}") for x in (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)])
    one = plot.x(1.0)
    drawing.path(f"M{one:.1f} {top - 8}V{bottom}", "ink", 1.5)
    for number, (values, tensors) in enumerate(data.shapes):
        y = top + ROW * number + 8
        drawing.text(0, y + 4.5, words("{values} in {tensors}", values=scientific(values), tensors=tensors))
        for key, ink in SHOWN:
            if found := data.speeds.get((key, values, tensors)):
                middle, q1, q3 = (plot.x(min(max(speed, low), high)) for speed in found)
                drawing.path(f"M{q1:.1f} {y}H{q3:.1f}", ink, 2)
                mark(drawing, middle, y, key, ink)
    return drawing


def mark(drawing: Drawing, x: float, y: float, key: str, ink: Ink) -> None:
    """Put a ring for others, and for the fast path a dot."""
    if key == SHOWN[-1][0]:
        drawing.dot(x, y, 5, ink)
    else:
        drawing.ring(x, y, 4, ink, 2)


# What is drawn for each: the size of the mark, the number of values, the number of tensors.
MARKS: tuple[tuple[float, int, int], ...] = ((2.5, 100_000, 500), (4, 1_000_000, 500), (5.5, 50_000_000, 4))


def fast_floor(words: Words) -> Drawing:
    """Draw a row for each contestant, with a mark for each size of tensor at so many times the floor."""
    times = floors()
    names = {
        "ours-fast/float16": words("AdamFP16, fast"),
        "ours-split/bfloat16": words("AdamFP16, fast, split"),
        "ours/float16": words("AdamFP16, readable"),
        "ancestor/float16": "labml_nn AdamFP16",
        REFERENCE: words("torch, fused"),
        "torch-foreach/float32": words("torch, foreach"),
        "torch-loop/float32": words("torch, loop"),
        "optimi/float32": "optimi",
        "torchao/float32": "torchao",
        "schedulefree/float32": "schedule-free",
        "pytorch-optimizer/float32": "StableAdamW",
    }
    rows = [(key, name) for key, name in names.items() if any((key, v, t) in times for _, v, t in MARKS)]

    def told(key: str, place: int) -> str:
        found = times.get((key, *MARKS[place][1:]))
        return "–" if found is None else f"{found:.0f}" if found > 10 else f"{found:.2g}"

    numbers = {
        f"{name}_{size}": told(key, place)
        for name, key in (("fast", "ours-fast/float16"), ("plain", "ours/float16"), ("fused", REFERENCE))
        for size, place in (("large", -1), ("small", 0))
    }
    title = words(
        "Time of a step in multiples of the floor. On large tensors AdamFP16 with the fast path takes {fast_large}, "
        "its readable loop {plain_large}, torch's fused Adam {fused_large}; on {tensors} small ones {fast_small}, "
        "{plain_small} and {fused_small}.",
        tensors=MARKS[0][2],
        **numbers,
    )
    top = 78
    bottom = top + ROW * len(rows)
    drawing = Drawing("fast_floor", 420, bottom + 28, title)
    low, high = 0.5, 300.0
    plot = Plot(drawing, (146, top, 412, bottom), logarithmic(low, high), linear(0, 1))
    drawing.text(0, 16, words("time of a step; the floor is 1"))
    x = 6.0
    for radius, values, tensors in MARKS:
        drawing.dot(x, 39.5, radius, "ink")
        drawing.text(x + 12, 44, words("{tensors} of {size}", tensors=tensors, size=f"{values // tensors:,}"))
        x += 138
    plot.axis([(x, f"{x:g}") for x in (1.0, 3.0, 10.0, 30.0, 100.0)])
    floor = plot.x(1.0)
    drawing.path(f"M{floor:.1f} {top - 10}V{bottom}", "kept", 1.5)
    for number, (key, name) in enumerate(rows):
        y = top + ROW * number + 8
        ink: Ink = "kept" if key.startswith(("ours-fast", "ours-split")) else "ink" if key == "ours/float16" else "soft"
        drawing.text(0, y + 4.5, name, ink)
        found = [
            (plot.x(min(max(times[key, v, t], low), high)), radius) for radius, v, t in MARKS if (key, v, t) in times
        ]
        ends = [x for x, _ in found]
        drawing.path(f"M{min(ends):.1f} {y}H{max(ends):.1f}", ink, 1)
        for x, radius in found:
            drawing.dot(x, y, radius, ink)
    return drawing
