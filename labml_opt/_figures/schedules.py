"""What rate step t uses, from `get_lr` of the optimizers themselves."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import torch

from labml_opt._figures.svg import Drawing, Ink, Plot, linear, scientific
from labml_opt._figures.words import Words
from labml_opt.adam_warmup import AdamWarmup
from labml_opt.adam_warmup_cosine_decay import AdamWarmupCosineDecay
from labml_opt.noam import Noam

LR = 1e-4
WARMUP = 5000
TOTALS = (4e6, 2e6, 1e6)
START, COURSE = 20_000, 6_000_000
SHORT, SHORT_END = 10, 20
NOAMS = ((512, 4000), (512, 8000), (2048, 2000))


def rates(optimizer: AdamWarmup, steps: list[int]) -> list[float]:
    """Ask the optimizer which rate each step would use."""
    group = optimizer.param_groups[0]
    return [float(optimizer.get_lr({"step": step}, group)) for step in steps]


@dataclass(frozen=True)
class Cosine:
    """The rates of one setting, and the first step that uses the lowest one."""

    total: float
    steps: list[int]
    rates: list[float]
    floor: float
    floor_step: int

    @property
    def floor_share(self) -> float:
        """Return how far on the way from warm-up to the end the floor is met."""
        return (self.floor_step - WARMUP) / (self.total - WARMUP)


@cache
def cosines(last: int, every: int) -> list[Cosine]:
    """Return the rate of each setting, for every so many steps from the first one on."""
    curves = []
    steps = [1, *range(every, last + 1, every)]
    for total in TOTALS:
        param = torch.nn.Parameter(torch.zeros(1))
        optimizer = AdamWarmupCosineDecay([param], lr=LR, warmup=WARMUP, total_steps=total)
        (floor,) = rates(optimizer, [int(total)])
        # The rate only falls, so the first step at the floor is found by halving.
        before, at = WARMUP, int(total)
        while at - before > 1:
            middle = (before + at) // 2
            before, at = (before, middle) if rates(optimizer, [middle])[0] <= floor else (middle, at)
        curves.append(Cosine(total, steps, rates(optimizer, steps), floor, at))
    return curves


def adam_warmup_cosine_decay(words: Words) -> Drawing:
    """Draw the first steps: the same warm-up for every length of training, and hardly a decay yet."""
    curves = cosines(START, 50)
    ends = [curve.rates[-1] for curve in curves]
    apart = _upper(100 * (max(ends) - min(ends)) / LR)
    title = words(
        "The learning rate over the first {steps} steps for total_steps of {a}, {b} and {c}: a line up to {lr} at step "
        "{warmup}, then three curves that differ by less than {apart}% of it.",
        steps=f"{START:,}",
        a=scientific(TOTALS[0]),
        b=scientific(TOTALS[1]),
        c=scientific(TOTALS[2]),
        lr=scientific(LR),
        warmup=f"{WARMUP:,}",
        apart=apart,
    )
    drawing = Drawing("adam_warmup_cosine_decay", 640, 300, title)
    plot = Plot(drawing, (46, 44, 632, 236), linear(0, START), linear(0, LR))
    drawing.text(0, 16, words("learning rate"))
    plot.levels([(LR, scientific(LR)), (0, "0")], rule=False)
    plot.axis([(x, f"{x:,.0f}") for x in (0, WARMUP, 10_000, 15_000, START)], title=words("step"))
    # The curves lie on each other, so each is narrower than the one below it.
    strokes: tuple[tuple[float, Ink], ...] = ((10, "tick"), (5, "ink"), (2, "kept"))
    drawing.text(plot.x(WARMUP) - 12, plot.y(LR) + 44, words("warmup : total_steps"), "ink")
    for k, (curve, (width, ink)) in enumerate(zip(curves, strokes, strict=True)):
        drawing.curve(plot.points(curve.steps, curve.rates), ink, width)
        x, y = plot.x(WARMUP) - 12, plot.y(LR) + 70 + 24 * k
        drawing.curve([(x, y), (x + 34, y)], ink, width)
        drawing.text(x + 44, y + 4.5, f"{WARMUP:,} : {scientific(curve.total)}")
    drawing.text(plot.x(WARMUP) - 12, plot.y(LR) + 70 + 24 * 3 + 6, words("less than {apart}% apart", apart=apart))
    return drawing


def adam_warmup_cosine_decay_total(words: Words) -> Drawing:
    """Draw the whole course: up in a line, down in a cosine, along the floor."""
    curves = cosines(COURSE, 10_000)
    share = f"{100 * curves[0].floor_share:.1f}"
    floor = curves[0].floor
    title = words(
        "The learning rate over {steps} steps for three settings. Each rises to {lr} within {warmup} steps, falls in a "
        "cosine and stays at {floor} from {share}% of the way on.",
        steps=scientific(COURSE),
        lr=scientific(LR),
        warmup=f"{WARMUP:,}",
        floor=scientific(floor),
        share=share,
    )
    drawing = Drawing("adam_warmup_cosine_decay_total", 480, 310, title)
    plot = Plot(drawing, (46, 44, 468, 246), linear(0, COURSE), linear(0, LR))
    drawing.text(0, 16, words("learning rate, warmup {warmup}, total_steps at the curve", warmup=f"{WARMUP:,}"))
    plot.levels([(LR, scientific(LR)), (floor, scientific(floor)), (0, "0")], rule=False)
    drawing.path(f"M{plot.left} {plot.y(floor):.1f}H{plot.right}", "tick", 1, "2 4")
    plot.axis([(0.0, "0"), *((x, scientific(x)) for x in (1e6, 2e6, 4e6, 6e6))], title=words("step"))
    for curve in curves:
        drawing.curve(plot.points(curve.steps, curve.rates), "kept", 2)
    for k, curve in enumerate(curves):
        drawing.dot(plot.x(curve.floor_step), plot.y(floor), 4, "kept")
        # Its name stands on its right, at a height where the next curve leaves room for it.
        level = LR * (0.75, 0.33, 0.24)[k]
        after = next(i for i, rate in enumerate(curve.rates) if curve.steps[i] > WARMUP and rate <= level)
        drawing.text(plot.x(curve.steps[after]) + 8, plot.y(level), scientific(curve.total), "ink")
    lowest = words("the floor, at {share}% of the way", share=share)
    drawing.text(plot.x(curves[0].floor_step) - 4, plot.y(floor) - 14, lowest)
    return drawing


@cache
def warmup() -> list[float]:
    """Return the rates of the steps 1, 2, 3, ..."""
    optimizer = AdamWarmup([torch.nn.Parameter(torch.zeros(1))], lr=LR, warmup=SHORT)
    return rates(optimizer, list(range(1, SHORT_END + 1)))


def adam_warmup(words: Words) -> Drawing:
    """Draw the rate of each of the first steps."""
    values = warmup()
    numbers = {"warmup": SHORT, "first": scientific(values[0]), "lr": scientific(LR)}
    title = words(
        "The learning rate of each of the first {steps} steps, for a warm-up of {warmup}: {first} at step 1, growing "
        "by as much at each step, {lr} from step {warmup} on.",
        steps=SHORT_END,
        **numbers,
    )
    drawing = Drawing("adam_warmup", 640, 310, title)
    plot = Plot(drawing, (46, 64, 632, 246), linear(0, SHORT_END + 0.5), linear(0, LR))
    drawing.text(0, 16, words("learning rate"))
    plot.levels([(LR, scientific(LR)), (values[0], scientific(values[0]))])
    plot.axis([(float(t), str(t)) for t in (1, 5, SHORT, 15, SHORT_END)], title=words("step"))
    places = plot.points(range(1, SHORT_END + 1), values)
    drawing.path("".join(f"M{x:.1f} {plot.bottom}V{y:.1f}" for x, y in places), "kept", 2)
    for x, y in places:
        drawing.dot(x, y, 5, "kept")
    drawing.text(plot.x(1) - 6, plot.y(LR) - 12, words("without a warm-up: {lr} from the first step", **numbers))
    return drawing


@dataclass(frozen=True)
class Tops:
    """The rates of one setting of Noam from the first step on, and the step with the highest one."""

    d_model: int
    warmup: int
    rates: list[float]
    top: int


@cache
def noams() -> list[Tops]:
    """Ask Noam for the rate of each step, with the paper's factor of 1."""
    curves = []
    for d_model, warmup in NOAMS:
        optimizer = Noam([torch.nn.Parameter(torch.zeros(1))], lr=1.0, warmup=warmup, d_model=d_model)
        values = rates(optimizer, list(range(1, START + 1)))
        curves.append(Tops(d_model, warmup, values, values.index(max(values)) + 1))
    return curves


def noam(words: Words) -> Drawing:
    """Draw the rate of each step for three settings of width and warm-up."""
    curves = noams()
    tops = [scientific(max(curve.rates), 2) for curve in curves]
    title = words(
        "The learning rate over the first {steps} steps. With d = {a_d} and w = {a_w} it rises in a line to {a} at "
        "step {a_top} and then falls like 1/√t. With {b_d} and {b_w} the top is {b}, at step {b_top}, and then the "
        "curve is the same. With {c_d} and {c_w} the top is {c}, at step {c_top}.",
        steps=f"{START:,}",
        **{f"{k}_d": f"{curve.d_model:,}" for k, curve in zip("abc", curves, strict=True)},
        **{f"{k}_w": f"{curve.warmup:,}" for k, curve in zip("abc", curves, strict=True)},
        **{f"{k}_top": f"{curve.top:,}" for k, curve in zip("abc", curves, strict=True)},
        **dict(zip("abc", tops, strict=True)),
    )
    drawing = Drawing("noam", 640, 350, title)
    highest = max(curves[0].rates)
    plot = Plot(drawing, (74, 54, 632, 286), linear(0, START), linear(0, highest))
    drawing.text(0, 16, words("learning rate, *d* : *w* at the curve"))
    plot.levels([(highest, tops[0]), (max(curves[1].rates), tops[1]), (0, "0")], rule=False)
    ticks = sorted(curve.top for curve in curves)
    plot.axis([(float(t), f"{t:,}") for t in (*ticks, 12_000, 16_000, START)], title=words("step"))
    styles: tuple[tuple[Ink, str], ...] = (("kept", ""), ("ink", "5 4"), ("ink", ""))
    # Where each name begins: a step, and a share of the highest rate.
    names = ((curves[0].top + 250, 1.0), (4150, 0.695), (5700, 0.27))
    for curve, (ink, dash), (at, level) in zip(curves, styles, names, strict=True):
        drawing.curve(plot.points(range(1, START + 1), curve.rates), ink, 2, dash)
        drawing.dot(plot.x(curve.top), plot.y(max(curve.rates)), 4, ink)
        drawing.text(plot.x(at), plot.y(level * highest), f"{curve.d_model:,} : {curve.warmup:,}", ink)
    return drawing


def small_noam(words: Words) -> Drawing:
    """Draw the ornament of the front page's list."""
    drawing = Drawing("small_noam", 176, 44)
    optimizer = Noam([torch.nn.Parameter(torch.zeros(1))], lr=1.0, warmup=140)
    steps = list(range(1, 1001))
    values = rates(optimizer, steps)
    plot = Plot(drawing, (1, 6, 175, 37), linear(0, 1000), linear(0, max(values)))
    plot.axis([])
    drawing.curve(plot.points(steps, values), "kept", 1.5)
    return drawing


def small_adam_warmup(words: Words) -> Drawing:
    """Draw the ornament of the front page's list."""
    drawing = Drawing("small_adam_warmup", 176, 44)
    plot = Plot(drawing, (1, 7, 175, 37), linear(0, SHORT_END), linear(0, LR))
    plot.axis([])
    drawing.curve([(1, 7), (175, 7)], "ink", 1.5, "3 3")
    drawing.curve(plot.points(range(SHORT_END + 1), [0, *warmup()]), "kept", 1.5)
    return drawing


def small_adam_warmup_cosine_decay(words: Words) -> Drawing:
    """Draw the ornament of the front page's list; its warm-up is a seventh of the course, so that it can be seen."""
    drawing = Drawing("small_adam_warmup_cosine_decay", 176, 44)
    plot = Plot(drawing, (1, 6, 175, 37), linear(0, 1000), linear(0, LR))
    plot.axis([])
    optimizer = AdamWarmupCosineDecay([torch.nn.Parameter(torch.zeros(1))], lr=LR, warmup=140, total_steps=1000)
    steps = list(range(1, 1001))
    drawing.curve(plot.points(steps, rates(optimizer, steps)), "kept", 1.5)
    return drawing


def _upper(value: float) -> str:
    """Round up to one significant digit: what is said to be less than this is."""
    digits = 0
    while round(value, digits) == 0 or value * 10**digits < 1:
        digits += 1
    scaled = int(value * 10**digits) + 1
    return f"{scaled / 10**digits:.{digits}f}"
