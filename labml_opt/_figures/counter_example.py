"""Where Adam and AMSGrad go on the problem that Adam does not solve; the run is the one of the page."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from labml_opt._figures.svg import Drawing, Ink, Plot, linear
from labml_opt._figures.words import Words
from labml_opt.amsgrad import counter_example

STEPS = 24_000
PERIOD = 101


@dataclass(frozen=True)
class Path:
    """Where x was in each period of the problem: lowest, average, highest; all zero before the first."""

    low: list[float]
    mean: list[float]
    high: list[float]


@cache
def paths() -> dict[str, Path]:
    """Run both optimizers, from 0 on."""
    found = {}
    for name, amsgrad in (("Adam", False), ("AMSGrad", True)):
        x = counter_example(STEPS, amsgrad=amsgrad)
        periods = [x[k : k + PERIOD] for k in range(0, STEPS - PERIOD + 1, PERIOD)]
        found[name] = Path(
            [0, *map(min, periods)], [0, *(sum(period) / PERIOD for period in periods)], [0, *map(max, periods)]
        )
    return found


def amsgrad(words: Words) -> Drawing:
    """Draw both ways: the average of x as a line, and the band in which it swings."""
    adam, ams = paths().values()
    title = words(
        "x over {steps} steps, from 0 on. The best place is −1. Adam walks the other way and stays near +1, at {adam} "
        "on average; AMSGrad comes to −1, to {amsgrad} on average.",
        steps=f"{STEPS:,}",
        adam=_signed(adam.mean[-1]),
        amsgrad=_signed(ams.mean[-1]),
    )
    drawing = Drawing("amsgrad", 640, 320, title)
    plot = Plot(drawing, (30, 40, 632, 258), linear(0, STEPS), linear(-1.08, 1.08))
    drawing.text(0, 16, words("*x*, which starts at 0"))
    plot.levels([(1, "+1"), (0, "0"), (-1, "−1")])
    plot.axis([(float(t), f"{t:,}") for t in range(0, STEPS + 1, 6000)], title=words("step"))
    _both(plot, 0.25, 2)
    drawing.text(plot.x(STEPS * 0.16), plot.y(0.42), "Adam", "ink", big=True)
    drawing.text(plot.x(STEPS * 0.16), plot.y(-0.82), "AMSGrad", "kept", big=True)
    drawing.text(plot.x(STEPS * 0.31), plot.y(-0.9), words("the best place: −1"))
    return drawing


def small_amsgrad(words: Words) -> Drawing:
    """Draw the ornament of the front page's list."""
    drawing = Drawing("small_amsgrad", 176, 44)
    plot = Plot(drawing, (1, 3, 175, 41), linear(0, STEPS), linear(-1, 1))
    drawing.path(f"M0 {plot.y(0):.0f}H176", "tick", 1)
    _both(plot, 0.2, 1.5)
    return drawing


def _both(plot: Plot, opacity: float, width: float) -> None:
    inks: tuple[Ink, Ink] = ("ink", "kept")
    for path, ink in zip(paths().values(), inks, strict=True):
        steps = [k * PERIOD for k in range(len(path.mean))]
        band = plot.points(steps, path.high) + plot.points(reversed(steps), reversed(path.low))
        plot.drawing.area(band, ink, opacity)
        plot.drawing.curve(plot.points(steps, path.mean), ink, width)


def _signed(value: float) -> str:
    return f"{value:+.2f}".replace("-", "−")
