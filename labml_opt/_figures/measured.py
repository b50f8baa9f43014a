"""How fast the optimizers were when they were measured: drawn from the benchmarks' stored file, nothing is run."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from labml_opt._figures.svg import Drawing, Ink, Plot, linear, logarithmic, scientific
from labml_opt._figures.words import Words

FILE = "benchmarks/results.json"
REFERENCE = "torch-fused/float32"
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


def ratios(path: Path | None = None) -> Ratios:
    """Read the stored file."""
    path = path or Path(__file__).resolve().parents[2] / FILE
    if not path.is_file():
        raise FileNotFoundError(f"{path} is not there: `python3 tasks.py bench` measures it")
    whole: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    speeds = {}
    for record in whole["results"]:
        job = record["job"]
        plain = job["kind"] == "pair" and job["a"] == {"key": REFERENCE} and job["b"].keys() == {"key"}
        if plain and job["threads"] == 1 and "ratio" in record:
            ratio = record["ratio"]
            speeds[job["b"]["key"], job["values"], job["tensors"]] = (ratio["median"], ratio["q1"], ratio["q3"])
    shapes = {(tensors, values) for _, values, tensors in speeds}
    return Ratios([(values, tensors) for tensors, values in sorted(shapes)], speeds)


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
    top, bottom = 92, 92 + ROW * len(data.shapes)
    drawing = Drawing("fast_ratios", 640, bottom + 56, title)
    low, high = 0.05, 20.0
    plot = Plot(drawing, (150, top, 632, bottom), logarithmic(low, high), linear(0, 1))
    drawing.text(0, 16, words("speed; torch's fused Adam in FP32 is 1"))
    for place, (key, ink) in enumerate(reversed(SHOWN)):
        column, line = place % 3, place // 3
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
                median, q1, q3 = (plot.x(min(max(speed, low), high)) for speed in found)
                drawing.path(f"M{q1:.1f} {y}H{q3:.1f}", ink, 2)
                mark(drawing, median, y, key, ink)
    return drawing


def mark(drawing: Drawing, x: float, y: float, key: str, ink: Ink) -> None:
    """Put a ring for others, and for the fast path a dot."""
    if key == SHOWN[-1][0]:
        drawing.dot(x, y, 5, ink)
    else:
        drawing.ring(x, y, 4, ink, 2)
