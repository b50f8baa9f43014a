"""What the number formats are, asked of torch: their spacing, and the updates that fall between two numbers."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import torch

from labml_opt._figures.svg import Drawing, Plot, logarithmic, plain, power, scientific
from labml_opt._figures.words import Words

BITS = {torch.float16: torch.int16, torch.bfloat16: torch.int16, torch.float32: torch.int32}
STEP = 2e-5


def neighbour(value: float, dtype: torch.dtype, places: int = 1) -> float:
    """Return the number of the format that lies so many places above `value` (below, if negative)."""
    bits = torch.tensor([value], dtype=dtype).view(BITS[dtype])
    return (bits + places).view(dtype).item()


def spacing(value: float, dtype: torch.dtype) -> float:
    """Return how far the next number of the format is from `value`."""
    return neighbour(value, dtype) - torch.tensor(value, dtype=dtype).item()


@dataclass(frozen=True)
class Grid:
    """Half the spacing at each power of two: an update under it is lost; and where a step of `STEP` starts to be."""

    exponents: list[int]
    half_spacing: dict[torch.dtype, list[float]]
    lost_from: dict[torch.dtype, float]


@cache
def grid() -> Grid:
    """Ask torch for the spacing of three formats from 2⁻¹¹ to 2, and add the step to the weights themselves."""
    exponents = list(range(-11, 2))
    half = {dtype: [spacing(2.0**e, dtype) / 2 for e in exponents] for dtype in BITS}
    lost_from = {}
    for dtype in BITS:
        weights = torch.tensor([2.0**e for e in range(-11, 16)], dtype=dtype)
        moved = weights + STEP != weights
        lost_from[dtype] = weights[~moved][0].item()
    return Grid(exponents, half, lost_from)


def adam_fp16_grid(words: Words) -> Drawing:
    """Draw the size of the smallest update that counts, against the size of the weight."""
    data = grid()
    fp16, bf16, fp32 = (data.lost_from[dtype] for dtype in (torch.float16, torch.bfloat16, torch.float32))
    title = words(
        "The smallest update that changes a weight, against the size of the weight, for BF16, FP16 and FP32. A step of "
        "{step} is lost in BF16 from weights of {bf16} up, in FP16 from {fp16} up, in FP32 from {fp32} up.",
        step=scientific(STEP),
        bf16=plain(round(bf16, 4)),
        fp16=plain(fp16),
        fp32=plain(fp32),
    )
    drawing = Drawing("adam_fp16_grid", 480, 344, title)
    low, high = 2.0 ** data.exponents[0], 2.0 ** (data.exponents[-1] + 1)
    plot = Plot(drawing, (58, 36, 424, 282), logarithmic(low, high), logarithmic(1e-11, 2e-2))
    drawing.text(0, 14, words("the smallest update that counts"))
    drawing.text(480, 14, words("red: a step of {step} is lost", step=scientific(STEP)), "lost", "end")
    plot.levels([(10.0**e, power(10, e)) for e in (-2, -4, -6, -8, -10)], rule=False)
    plot.axis([(0.001, "0.001"), (0.01, "0.01"), (0.1, "0.1"), (1, "1")], title=words("size of the weight"))

    names = {torch.bfloat16: "BF16", torch.float16: "FP16", torch.float32: "FP32"}
    for dtype, name in names.items():
        stairs = []
        for e, half in zip(data.exponents, data.half_spacing[dtype], strict=True):
            stairs += [(2.0**e, half), (2.0 ** (e + 1), half)]
        kept = [(a, b) for a, b in stairs if b < STEP]
        lost = [(a, b) for a, b in stairs if b >= STEP]
        if lost:
            kept.append(lost[0])
            drawing.curve([(plot.x(a), plot.y(b)) for a, b in lost], "lost", 2)
        drawing.curve([(plot.x(a), plot.y(b)) for a, b in kept], "kept", 2)
        drawing.text(plot.right + 8, plot.y(stairs[-1][1]) + 5, name, "lost" if lost else "kept", big=True)
        if lost:
            x = plot.x(data.lost_from[dtype])
            drawing.path(f"M{x:.1f} {plot.y(STEP):.1f}V{plot.bottom}", "lost", 1, "2 4")
    level = plot.y(STEP)
    drawing.path(f"M{plot.left} {level:.1f}H{plot.right}", "ink", 1.5)
    drawing.text(plot.left + 4, level - 7, words("the step: {step}", step=scientific(STEP)), "ink")
    for value in (bf16, fp16):
        drawing.text(plot.x(value) + 6, plot.bottom - 8, plain(round(value, 4)), "lost")
    return drawing
