"""What a step moves through memory and how often it calls torch: counted on a step that is taken, nothing is timed."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from labml_opt._figures import measured
from labml_opt._figures.svg import Drawing, Ink, Plot, linear
from labml_opt._figures.words import Words
from labml_opt.adam_fp16 import AdamFP16

WIDE, NARROW = torch.float32.itemsize, torch.float16.itemsize
VALUES = 64
# What a call fills without looking at what was there.
FILLED = ("copy_", "_foreach_copy_", "fill_", "zero_")


@dataclass(frozen=True)
class Piece:
    """Bytes of one tensor, for each of its values: what a step reads and writes, and whether the optimizer keeps it."""

    symbol: str
    read: int
    written: int
    kept: bool = False


MOMENTS = (Piece("*m*", WIDE, WIDE, True), Piece("*v*", WIDE, WIDE, True))
# In the order of a step. With a split the parameter is the upper half of the FP32 weight, so it is read as well.
LEDGERS: dict[str, tuple[Piece, ...]] = {
    "FP32": (Piece("*g*", WIDE, 0), Piece("*θ*", WIDE, WIDE), *MOMENTS),
    "FP16": (Piece("*g*", NARROW, 0), Piece("*θ*¹⁶", 0, NARROW), Piece("*θ*³²", WIDE, WIDE, True), *MOMENTS),
    "BF16": (Piece("*g*", NARROW, 0), Piece("*θ*¹⁶", NARROW, NARROW), Piece("residue", NARROW, NARROW, True), *MOMENTS),
}


def moved(ledger: tuple[Piece, ...]) -> int:
    """Return the bytes that have to pass through memory for one value: each tensor read once and written once."""
    return sum(piece.read + piece.written for piece in ledger)


def kept(ledger: tuple[Piece, ...]) -> int:
    """Return the bytes that the optimizer keeps for one value, beside parameter and gradient."""
    return sum(piece.written for piece in ledger if piece.kept)


@dataclass(frozen=True)
class Call:
    """One call of torch: its name with the tensor that it is called on, and the bytes it moves for each value."""

    name: str
    moved: int


class Counting(TorchDispatchMode):
    """Notes the calls that torch's kernels get, with the bytes of all tensors that they read and write."""

    def __init__(self, symbols: dict[int, str]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.symbols = symbols
        self.calls: list[Call] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Let the call happen and note it, unless it is about no values or only looks at them in another shape."""
        kwargs = kwargs or {}
        # Which tensors are written is asked of the call's signature before it happens.
        sides: dict[bool, list[Tensor]] = {True: [], False: []}
        for argument, value in zip(func._schema.arguments, args, strict=False):
            written = argument.alias_info is not None and argument.alias_info.is_write
            sides[written] += [leaf for leaf in tree_leaves(value) if isinstance(leaf, Tensor) and leaf.numel() > 1]
        result = func(*args, **kwargs)
        name = func._schema.name.removeprefix("aten::")
        before = {tensor.data_ptr() for side in sides.values() for tensor in side}
        fresh = [leaf for leaf in tree_leaves(result) if isinstance(leaf, Tensor) and leaf.data_ptr() not in before]
        if before and not func.is_view:
            read = sides[False] + ([] if name in FILLED else sides[True])
            # A tensor that is handed over twice is read once: the second time it comes from the cache.
            places = {tensor.data_ptr(): tensor for tensor in read}
            tensors = [*places.values(), *sides[True], *fresh]
            first = next(leaf for leaf in tree_leaves(args) if isinstance(leaf, Tensor))
            # `to` is called `_to_copy` inside.
            method = {"_to_copy": "to"}.get(name, name)
            self.calls.append(
                Call(f"{self.symbols.get(first.data_ptr(), '')}.{method}", sum(t.nbytes for t in tensors) // VALUES)
            )
        return result


@cache
def loop() -> list[Call]:
    """Take a step of the readable path with FP16 parameters and return its calls."""
    param = torch.nn.Parameter(torch.linspace(-1, 1, VALUES).half())
    optimizer = AdamFP16([param], lr=1e-3)
    grads = [torch.linspace(1, -1, VALUES).half() for _ in range(2)]
    # The first step makes the state.
    param.grad = grads[0]
    optimizer.step()
    param.grad = grads[1]
    state = optimizer.state[param]
    named = {"*θ*¹⁶": param, "*g*": param.grad, "*θ*³²": state["master"], "*m*": state["exp_avg"]}
    symbols = {tensor.data_ptr(): symbol for symbol, tensor in (*named.items(), ("*v*", state["exp_avg_sq"]))}
    counting = Counting(symbols)
    with counting:
        optimizer.step()
    return counting.calls


def fast_bytes(words: Words) -> Drawing:
    """Draw a square for each byte that a step moves for one value, in three formats."""
    numbers = {}
    for name, ledger in LEDGERS.items():
        numbers[f"{name}_moved"], numbers[f"{name}_kept"] = moved(ledger), kept(ledger)
    title = words(
        "The bytes that a step of Adam moves for one value, a square each. FP32: {FP32_moved}, of which the optimizer "
        "keeps {FP32_kept}. FP16 with an FP32 master: {FP16_moved}, it keeps {FP16_kept}. BF16 with split masters: "
        "{BF16_moved}, it keeps {BF16_kept}.",
        **numbers,
    )
    drawing = Drawing("fast_bytes", 420, 288, title)
    headings = {
        "FP32": words("FP32"),
        "FP16": words("FP16 with an FP32 master"),
        "BF16": words("BF16 with split masters"),
    }
    pitch, side, gap = 13.2, 10.2, 8.0
    for number, (name, ledger) in enumerate(LEDGERS.items()):
        top = 14 + 84 * number
        drawing.text(0, top, headings[name], "ink", big=True)
        told = words("moves {moved}, keeps {kept}", moved=moved(ledger), kept=kept(ledger))
        drawing.text(420, top, told, anchor="end")
        x, y = 0.5, top + 14.0
        full: dict[Ink, list[tuple[float, float, float, float]]] = {"ink": [], "kept": []}
        empty: dict[Ink, list[str]] = {"ink": [], "kept": []}
        for piece in ledger:
            ink: Ink = "kept" if piece.kept else "ink"
            count = piece.read + piece.written
            for place in range(count):
                left = x + pitch * place
                if place < piece.read:
                    full[ink].append((left, y, side, side))
                else:
                    empty[ink].append(f"M{left + 0.75:.1f} {y + 0.75:.1f}h8.7v8.7h-8.7z")
            symbol = words("residue") if piece.symbol == "residue" else piece.symbol
            drawing.text(x + (pitch * count - pitch + side) / 2, y + 29, symbol, anchor="middle")
            x += pitch * count + gap
        for ink in full:
            drawing.bars(full[ink], ink)
            drawing.path("".join(empty[ink]), ink, 1.5)
    y = 14 + 84 * len(LEDGERS)
    drawing.path(f"M0 {y - 10}H420", "tick", 1)
    x = 0.5
    for ink, hollow, told in (
        ("ink", False, words("read")),
        ("ink", True, words("written")),
        ("kept", False, words("kept by the optimizer")),
    ):
        if hollow:
            drawing.path(f"M{x + 0.75} {y + 7.75}h8.7v8.7h-8.7z", "ink", 1.5)
        else:
            drawing.bars([(x, y + 7, side, side)], "kept" if ink == "kept" else "ink")
        drawing.text(x + 17, y + 16.5, told)
        x += 110
    return drawing


def fast_passes(words: Words) -> Drawing:
    """Draw a bar for each call of the loop, each beginning where the one before has ended."""
    calls = loop()
    floor, whole = moved(LEDGERS["FP16"]), sum(call.moved for call in calls)
    numbers = {"calls": len(calls), "whole": whole, "floor": floor, "times": f"{whole / floor:.1f}"}
    title = words(
        "The {calls} calls of a step of AdamFP16 on one parameter, each with the bytes that it moves for a value. "
        "Together they move {whole}, which is {times} times the {floor} of a single pass.",
        **numbers,
    )
    row, top = 21, 40
    bottom = top + row * (len(calls) + 1) + 14
    drawing = Drawing("fast_passes", 420, bottom + 28, title)
    plot = Plot(drawing, (118, top, 412, bottom), linear(0, whole), linear(0, 1))
    drawing.text(0, 16, words("bytes moved for each value"))
    x = plot.x(floor)
    drawing.path(f"M{x:.1f} {top - 6}V{bottom}", "kept", 1, "2 4")
    bars = []
    for number, (call, end) in enumerate(zip(calls, accumulate(call.moved for call in calls), strict=True)):
        y = top + row * number
        left, right = plot.x(end - call.moved), plot.x(end)
        bars.append((left, y, right - left, 12.0))
        drawing.text(0, y + 10.5, call.name)
        # The number stands behind its bar as long as there is room.
        behind = right + 26 < plot.right
        drawing.text(right + 6 if behind else left - 6, y + 10.5, f"{call.moved}", anchor="start" if behind else "end")
    drawing.bars(bars, "soft")
    y = top + row * len(calls) + 8
    drawing.bars([(plot.left, y, x - plot.left, 12.0)], "kept")
    drawing.text(0, y + 10.5, words("fast, one pass"), "kept")
    drawing.text(x + 6, y + 10.5, f"{floor}", "kept")
    plot.axis([(0, "0"), (floor, f"{floor}"), (whole, f"{whole}")])
    return drawing


@dataclass(frozen=True)
class Share:
    """Where the time of the loop goes on tensors of one size: shares of a step."""

    values: int
    tensors: int
    calls: float
    once: float

    @property
    def size(self) -> str:
        """Return the number of values in a tensor."""
        return f"{self.values // self.tensors:,}"

    @property
    def again(self) -> float:
        """Return the share of what is moved again, and of what is made on the way."""
        return 1 - self.calls - self.once


def shares(times: dict[tuple[str, int, int], float], calls: int) -> list[Share]:
    """
    Divide the time of a step of the loop at each size, smallest tensors first.

    * `times` are those of `measured.floors`
    * `calls` is the number of calls for one tensor

    A call costs the same on every tensor. On the smallest ones there is nothing else, next to what the floor takes; so
    they tell what a call costs. In units of the floor of one value, as all times here.
    """
    found = {(v, t): time * v for (key, v, t), time in times.items() if key == "ours/float16"}
    most = max((t for _, t in found), default=0)
    sizes = sorted((v / t, v, t) for v, t in found if t == most)
    if not sizes:
        return []
    # Nobody has 500 tensors as large as the largest four.
    sizes += [size for size in sorted((v / t, v, t) for v, t in found)[-1:] if size not in sizes]
    _, values, tensors = sizes[0]
    a_call = (found[values, tensors] - values) / (calls * tensors)
    made = []
    for _, values, tensors in sizes:
        time = found[values, tensors]
        share = min(max(calls * tensors * a_call / time, 0.0), 1.0)
        made.append(Share(values, tensors, share, min(values / time, 1 - share)))
    return made


def fast_calls(words: Words) -> Drawing:
    """Draw a bar for each size of tensor: what part of the loop's time goes to calls, and what part to memory."""
    calls = len(loop())
    found = shares(measured.floors(), calls)
    percent = [f"{100 * share.calls:.2g}" for share in found] or ["–"]
    title = words(
        "Where the time of AdamFP16's loop goes. In {tensors} tensors of {values} values, calls take {most}% of a "
        "step; in {few} of {many}, {least}%.",
        tensors=found[0].tensors if found else "–",
        values=found[0].size if found else "–",
        few=found[-1].tensors if found else "–",
        many=found[-1].size if found else "–",
        most=percent[0],
        least=percent[-1],
    )
    row, top = 44, 64
    bottom = top + row * len(found)
    drawing = Drawing("fast_calls", 420, bottom + 28, title)
    plot = Plot(drawing, (0, top, 420, bottom), linear(0, 100), linear(0, 1))
    drawing.text(0, 16, words("share of the time of a step, in percent"))
    x = 0.0
    inks: tuple[tuple[Ink, str], ...] = (
        ("ink", words("calls")),
        ("kept", words("memory, once")),
        ("soft", words("memory, again")),
    )
    for ink, told in inks:
        drawing.bars([(x, 30, 11, 11)], ink)
        drawing.text(x + 17, 40, told)
        x += 128
    for number, share in enumerate(found):
        y = top + row * number
        drawing.text(0, y + 11, words("{tensors} tensors of {size}", tensors=share.tensors, size=share.size))
        told = words("{calls} calls", calls=f"{calls * share.tensors:,}")
        drawing.text(420, y + 11, told, anchor="end")
        left = 0.0
        for part, (ink, _) in zip((share.calls, share.once, share.again), inks, strict=True):
            width = 420 * part
            if width > 0.3:
                drawing.bars([(left, y + 17, max(width - 1, 0.3), 13)], ink)
            left += width
    plot.axis([(0, "0"), (50, "50"), (100, "100")])
    return drawing
