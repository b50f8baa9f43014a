"""The weight on its number line: the step that rounds away, and the same step with an FP32 master."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise

import torch

from labml_opt._figures.formats import STEP, neighbour, spacing
from labml_opt._figures.svg import Drawing, plain, scientific
from labml_opt._figures.words import Words
from labml_opt.adam import Adam
from labml_opt.adam_fp16 import AdamFP16

WEIGHT = 0.07
STEPS = 5
BEFORE, AFTER = 11, 13
# The fine ticks stand for FP32's numbers. There are 8,192 of them to each number of FP16 here, too many to draw.
FINE = 20


@dataclass(frozen=True)
class Walk:
    """Where the weight is before the first step and after each one."""

    start: float
    spacing: float
    numbers: list[float]
    alone: list[float]
    master: list[float]
    rounded: list[float]

    def places(self, values: Sequence[float]) -> list[float]:
        """Return distances from the start in numbers of FP16."""
        return [(value - self.start) / self.spacing for value in values]


@cache
def walk() -> Walk:
    """Take five steps with a gradient of -1, so that Adam asks for its learning rate each time."""
    alone = torch.nn.Parameter(torch.tensor([WEIGHT]).half())
    param = torch.nn.Parameter(torch.tensor([WEIGHT]).half())
    start = param.item()
    with warnings.catch_warnings():
        # What Adam warns of here is what the figure is about.
        warnings.simplefilter("ignore")
        runs = (
            (alone, Adam([alone], lr=STEP), lambda optimizer: alone),
            (param, AdamFP16([param], lr=STEP), lambda optimizer: optimizer.state[param]["master"]),
        )
        seen: list[list[float]] = []
        rounded = [start]
        for weight, optimizer, precise in runs:
            values = [start]
            for _ in range(STEPS):
                weight.grad = torch.full_like(weight, -1)
                optimizer.step()
                values.append(precise(optimizer).item())
                if weight is param:
                    rounded.append(param.item())
            seen.append(values)
    numbers = [neighbour(start, torch.float16, k) for k in range(-BEFORE, AFTER + 1)]
    return Walk(start, spacing(start, torch.float16), numbers, seen[0], seen[1], rounded)


def hero(words: Words) -> Drawing:
    """Draw the front page's ruler; its stylesheet moves the classes try, hop, w32 and w16 by --step and --cell."""
    data = walk()
    cell = 150.0
    origin = BEFORE * cell
    step = data.places(data.master)[1] * cell
    moved = round(data.places(data.rounded)[-1])
    numbers = {"step": plain(STEP), "count": STEPS, "moved": moved}
    title = words(
        "Two number lines of FP16 values near {weight}, {spacing} apart. On the first, a step of {step} rounds back to "
        "where it began. On the second, {count} such steps add up in FP32 and the FP16 weight moves {moved} places.",
        weight=plain(WEIGHT),
        spacing=f"{data.spacing:.6f}",
        **numbers,
    )
    drawing = Drawing("hero", 3600, 400, title, f"--step:{step:.1f}px;--cell:{cell:.0f}px")
    upper, lower = 124, 316
    _ruler(drawing, 0, 3600, (upper, lower), [k * cell for k in range(1, BEFORE + AFTER)], cell, half=16)
    for k, value in enumerate(data.numbers[1:-1], 1):
        drawing.text(k * cell, lower + 48, f"{value:.6f}", anchor="middle")
    left = origin - 14
    drawing.text(left, upper - 84, words("FP16 alone"), "lost", big=True)
    drawing.text(left, upper - 64, words("+{step} falls between two numbers, and back", **numbers))
    drawing.text(left, lower - 84, words("With an FP32 master"), "kept", big=True)
    drawing.text(left, lower - 64, words("+{step}, {count} times: {moved} numbers further", **numbers))
    drawing.begin("try")
    _attempt(drawing, origin, upper, step, 68)
    drawing.end()
    drawing.dot(origin, upper, 10, "lost")
    for i, (a, b) in enumerate(_hops(data, origin, cell)):
        drawing.path(
            f"M{a:.1f} {lower - 5}q{(b - a) / 2:.1f} -68 {b - a:.1f} 0",
            "kept",
            3,
            css="hop",
            more=f'pathLength="1" style="--i:{i}"',
        )
    drawing.begin("w32")
    drawing.dot(origin + data.places(data.master)[-1] * cell, lower, 7.5, "kept")
    drawing.end()
    drawing.begin("w16")
    drawing.ring(origin + data.places(data.rounded)[-1] * cell, lower, 12, "kept", 2.5)
    drawing.end()
    return drawing


def adam_fp16(words: Words) -> Drawing:
    """Draw the head figure of the page: two number lines, what matters in the left 330 pixels."""
    data = walk()
    cell, origin = 120.0, 60.0
    step = data.places(data.master)[1] * cell
    end = data.places(data.master)[-1] * cell + origin
    ring = data.places(data.rounded)[-1] * cell + origin
    numbers = {"step": scientific(STEP), "count": STEPS, "moved": round(data.places(data.rounded)[-1])}
    title = words(
        "Two number lines of FP16 values near {weight}. In FP16 alone a step of {step} rounds back to where it was. "
        "With an FP32 master {count} steps add up, and the FP16 weight has moved by {moved}.",
        weight=plain(WEIGHT),
        **numbers,
    )
    drawing = Drawing("adam_fp16", 640, 290, title)
    upper, lower = 104, 238
    ticks = [origin + k * cell for k in range(5)]
    _ruler(drawing, 0, 640, (upper, lower), ticks, cell, half=11)
    for k, x in enumerate(ticks):
        drawing.text(x, lower + 40, f"{data.numbers[BEFORE + k]:.6f}", anchor="middle")
    drawing.text(0, 16, words("FP16 alone"), "lost", big=True)
    drawing.text(0, 37, words("a step of {step} rounds back to where it was", **numbers))
    drawing.text(0, 150, words("With an FP32 master"), "kept", big=True)
    drawing.text(0, 171, words("{count} steps add up, and the FP16 weight has moved by {moved}", **numbers))
    _attempt(drawing, origin, upper, step, 54)
    drawing.dot(origin, upper, 6.5, "lost")
    for a, b in _hops(data, origin, cell):
        drawing.path(f"M{a:.1f} {lower - 4}q{(b - a) / 2:.1f} -50 {b - a:.1f} 0", "kept", 2)
    drawing.path(f"M{end + 9:.1f} {lower}H{ring - 8:.1f}", "kept", 1.5, "2 3")
    drawing.dot(end, lower, 5.5, "kept")
    drawing.ring(ring, lower, 7.5, "kept", 2)
    return drawing


def small_adam_fp16(words: Words) -> Drawing:
    """Draw the ornament of the front page's list: one step that is lost, five that add up."""
    data = walk()
    cell = 40.0
    drawing = Drawing("small_adam_fp16", 176, 44)
    y = 36
    drawing.path(f"M0 {y}H176", "tick", 1)
    drawing.path("".join(f"M{8 + k * cell:.0f} {y - 6}v6" for k in range(5)), "ink", 1.5)
    step = data.places(data.master)[1] * cell
    drawing.path(f"M8 {y - 1}q{step / 2:.1f} -26 {step:.1f} 0", "lost", 1.5)
    for a, b in _hops(data, 48, cell):
        drawing.path(f"M{a:.1f} {y - 1}q{(b - a) / 2:.1f} -26 {b - a:.1f} 0", "kept", 1.5)
    return drawing


def _ruler(
    drawing: Drawing, left: float, right: float, heights: tuple[int, int], ticks: list[float], cell: float, half: int
) -> None:
    """Draw both lines: FP16's numbers on each, and on the lower one the finer grid that the master lives on."""
    upper, lower = heights
    drawing.path(f"M{left:.0f} {upper}.5H{right:.0f}M{left:.0f} {lower}.5H{right:.0f}", "tick", 1)
    fine = cell / FINE
    phase = (ticks[0] - left) % fine
    drawing.path(f"M{left + phase - 0.5:.1f} {lower}.5H{right:.0f}", "tick", 8, f"1 {fine - 1:g}")
    drawing.path("".join(f"M{x:.1f} {y - half}v{2 * half}" for x in ticks for y in heights), "ink", 1.5)


def _attempt(drawing: Drawing, x: float, y: float, step: float, height: float) -> None:
    """Draw the step that is asked for, the place between two numbers, and the way back."""
    drawing.path(f"M{x:.1f} {y - 5}q{step / 2:.1f} {-height} {step:.1f} 0", "lost", 2.5)
    drawing.ring(x + step, y, 6, "lost", 1.5, "3 3")
    drawing.path(f"M{x + step - 7:.1f} {y + 11}q{-step / 3:.1f} 14 {-step * 0.66:.1f} 1", "lost", 1.5, "2 4")


def _hops(data: Walk, origin: float, cell: float) -> list[tuple[float, float]]:
    """Return where each step of the master begins and ends on the paper."""
    places = [origin + place * cell for place in data.places(data.master)]
    return list(pairwise(places))
