"""One FP32 number, bit for bit, and the two halves that it is taken apart to."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import torch

from labml_opt._figures.svg import Drawing, Ink, plain
from labml_opt._figures.words import Words
from labml_opt.split_master import split

MASTER = 0.1
CELL, LEFT = 14.5, 8.0


@dataclass(frozen=True)
class Halves:
    """The bits of the three numbers, as digits, and what two of them are worth."""

    master: str
    upper: str
    lower: str
    weight: float
    residue: int


@cache
def halves() -> Halves:
    """Take one number apart, with the function of the page."""
    master = torch.tensor([MASTER])
    param, residue = split(master)
    whole, upper, lower = (
        f"{int(tensor.item()) % 2**bits:0{bits}b}"
        for tensor, bits in ((master.view(torch.int32), 32), (param.view(torch.int16), 16), (residue, 16))
    )
    return Halves(whole, upper, lower, param.item(), int(residue.item()))


def split_master(words: Words) -> Drawing:
    """Draw the three rows of bits; what rounding has changed in the upper half is set in red."""
    data = halves()
    numbers = {"master": plain(MASTER), "weight": plain(data.weight), "residue": f"{data.residue:,}".replace("-", "−")}
    title = words(
        "The 32 bits of the FP32 number {master}: a sign, 8 bits of exponent, 23 of fraction. Below them the two "
        "halves: 16 bits are the BF16 weight {weight}, 16 are R = {residue}. The weight was rounded up, so its last "
        "bit differs from the one above it.",
        **numbers,
    )
    drawing = Drawing("split_master", 480, 218, title)
    upper, lower = 44.0, 142.0
    drawing.text(LEFT, 14, words("the FP32 master, {master}", **numbers), "ink")
    for begin, end, name in ((0, 1, words("sign")), (1, 9, words("exponent")), (9, 32, words("fraction"))):
        left, right = LEFT + begin * CELL + 1, LEFT + end * CELL - 1
        drawing.path(f"M{left:.1f} {upper + 26}v4H{right:.1f}v-4", "tick", 1)
        drawing.text((left + right) / 2 if begin else LEFT, upper + 46, name, anchor="middle" if begin else "start")
    _row(drawing, LEFT, upper, data.master, "ink")
    _row(drawing, LEFT, lower, data.upper, "kept", beside=data.master[:16])
    _row(drawing, LEFT + 16 * CELL, lower, data.lower, "ink")
    middle = LEFT + 16 * CELL
    drawing.path(f"M{middle} {upper - 14}V{lower + 34}", "tick", 1, "2 4")
    drawing.text(LEFT, lower + 44, words("the BF16 weight, in the model"), "kept")
    drawing.text(LEFT, lower + 62, words("{weight}, rounded up", **numbers))
    drawing.text(middle + 8, lower + 44, words("*R*, in the optimizer"), "ink")
    drawing.text(middle + 8, lower + 62, words("{residue} numbers of FP32", **numbers))
    return drawing


def _row(drawing: Drawing, left: float, top: float, digits: str, ink: Ink, beside: str = "") -> None:
    right = left + len(digits) * CELL
    drawing.path(f"M{left} {top - 2}H{right}V{top + 22}H{left}Z", ink, 1.5)
    for place, digit in enumerate(digits):
        changed = bool(beside) and digit != beside[place]
        drawing.text(left + (place + 0.5) * CELL, top + 14.5, digit, "lost" if changed else ink, "middle")
