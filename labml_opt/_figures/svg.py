"""A small SVG that takes its colours from the page it stands in.

A figure is put into the page itself, so it follows the page's light and dark scheme: every colour is a variable of the
page's stylesheet, with the light value as a fallback for a figure that is opened alone. Nothing here knows a number of
its own: what is drawn comes from the modules beside this one.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from html import escape
from typing import Literal

Ink = Literal["ink", "tick", "kept", "lost", "soft"]
Anchor = Literal["start", "middle", "end"]
Point = tuple[float, float]
Scale = Callable[[float], float]

# Red is what half precision loses, blue what FP32 keeps; all else is ink on paper.
COLOURS: dict[str, str] = {
    "ink": "var(--ink,#1a1e24)",
    "soft": "var(--soft,#566069)",
    "tick": "var(--tick,#a3aeb8)",
    "kept": "var(--kept,#1a5cb0)",
    "lost": "var(--lost,#b52d13)",
}
TEXT = 13
BIG = 15
SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


class Drawing:
    """
    One figure: shapes and words are added in the order in which they are painted.

    `title` is what a reader who cannot see it is told; without one the figure is an ornament. `style` goes to the root.
    """

    def __init__(self, name: str, width: float, height: float, title: str = "", style: str = "") -> None:
        self.name = name
        self.width = width
        self.height = height
        self.title = title
        self.style = style
        self.parts: list[str] = []

    def path(self, d: str, ink: Ink = "ink", width: float = 1.5, dash: str = "", css: str = "", more: str = "") -> None:
        """Stroke the path `d`; `css` holds further classes, `more` further attributes."""
        classes = f"f-{ink} {css}".strip()
        dashes = f' stroke-dasharray="{dash}"' if dash else ""
        self.parts.append(
            f'<path class="{classes}" fill="none" stroke="{COLOURS[ink]}" stroke-width="{_n(width)}"{dashes}'
            f'{" " if more else ""}{more} d="{d}"/>'
        )

    def curve(self, points: Iterable[Point], ink: Ink = "ink", width: float = 2, dash: str = "") -> None:
        """Stroke a line through the points; those that the eye would not miss are left out."""
        self.path(_lines(_thin_out(list(points))), ink, width, dash, more='stroke-linejoin="round"')

    def area(self, points: Iterable[Point], ink: Ink, opacity: float = 1) -> None:
        """Fill the polygon of the points."""
        faint = f' fill-opacity="{_n(opacity)}"' if opacity < 1 else ""
        self.parts.append(f'<path fill="{COLOURS[ink]}"{faint} d="{_lines(_thin_out(list(points)))}Z"/>')

    def bars(self, boxes: Iterable[tuple[float, float, float, float]], ink: Ink) -> None:
        """Fill boxes given as (x, y, width, height), all in one ink."""
        d = "".join(f"M{_n(x)} {_n(y)}h{_n(w)}v{_n(h)}h{_n(-w)}z" for x, y, w, h in boxes if h > 0.05)
        if d:
            self.parts.append(f'<path fill="{COLOURS[ink]}" d="{d}"/>')

    def dot(self, x: float, y: float, radius: float, ink: Ink) -> None:
        """Draw a filled circle."""
        self.parts.append(f'<circle cx="{_n(x)}" cy="{_n(y)}" r="{_n(radius)}" fill="{COLOURS[ink]}"/>')

    def ring(self, x: float, y: float, radius: float, ink: Ink, width: float = 1.5, dash: str = "") -> None:
        """Draw an empty circle."""
        dashes = f' stroke-dasharray="{dash}"' if dash else ""
        self.parts.append(
            f'<circle class="f-{ink}" cx="{_n(x)}" cy="{_n(y)}" r="{_n(radius)}" fill="none" '
            f'stroke="{COLOURS[ink]}" stroke-width="{_n(width)}"{dashes}/>'
        )

    def text(
        self, x: float, y: float, words: str, ink: Ink = "soft", anchor: Anchor = "start", big: bool = False
    ) -> None:
        """Write one line; `*x*` in it is set in italics."""
        classes = " ".join(name for name, wanted in ((f"t-{ink}", ink in ("kept", "lost")), ("big", big)) if wanted)
        attributes = f' class="{classes}"' if classes else ""
        if ink != "soft":
            attributes += f' fill="{COLOURS[ink]}"'
            # The page's stylesheet paints every other text in the soft ink; a style of its own is what it leaves alone.
            if ink == "ink":
                attributes += f' style="fill:{COLOURS[ink]}"'
        if anchor != "start":
            attributes += f' text-anchor="{anchor}"'
        if big:
            attributes += f' font-size="{BIG}" font-weight="600"'
        body = re.sub(r"\*([^*]+)\*", r'<tspan font-style="italic">\1</tspan>', escape(words, quote=False))
        self.parts.append(f'<text x="{_n(x)}" y="{_n(y)}"{attributes}>{body}</text>')

    def begin(self, css_class: str) -> None:
        """Open a group that the page's stylesheet may move."""
        self.parts.append(f'<g class="{css_class}">')

    def end(self) -> None:
        """Close the group."""
        self.parts.append("</g>")

    def svg(self, language: str, origin: str) -> str:
        """Return the file; `origin` says how it was made."""
        label = f"figure-{self.name}"
        told = f'role="img" aria-labelledby="{label}"' if self.title else 'aria-hidden="true"'
        style = f' style="{self.style}"' if self.style else ""
        head = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_n(self.width)} {_n(self.height)}" '
            f'lang="{language}" {told} '
            f'font-family="sans-serif" font-size="{TEXT}" fill="{COLOURS["soft"]}"{style}>'
        ]
        if self.title:
            head.append(f'<title id="{label}">{escape(self.title, quote=False)}</title>')
        head.append(f"<metadata>{escape(origin, quote=False)}</metadata>")
        return "\n".join([*head, *self.parts, "</svg>", ""])


class Plot:
    """Data on paper: two scales, a box to draw in, and an axis that is a number line."""

    def __init__(self, drawing: Drawing, box: tuple[float, float, float, float], x: Scale, y: Scale) -> None:
        self.drawing = drawing
        self.left, self.top, self.right, self.bottom = box
        self.scale_x = x
        self.scale_y = y

    def x(self, value: float) -> float:
        """Where on the paper a value of the horizontal axis lies."""
        return self.left + (self.right - self.left) * self.scale_x(value)

    def y(self, value: float) -> float:
        """Where on the paper a value of the vertical axis lies."""
        return self.bottom - (self.bottom - self.top) * self.scale_y(value)

    def points(self, xs: Iterable[float], ys: Iterable[float]) -> list[Point]:
        """Put data on the paper."""
        return [(self.x(a), self.y(b)) for a, b in zip(xs, ys, strict=True)]

    def axis(self, ticks: Sequence[tuple[float, str]], end: float | None = None, title: str = "") -> None:
        """Draw the horizontal axis: a number line with a few ticks and its title at the right end."""
        ends = self.right if end is None else end
        self.drawing.path(f"M{_n(self.left)} {_n(self.bottom)}H{_n(ends)}", "tick", 1)
        self.drawing.path("".join(f"M{_n(self.x(at))} {_n(self.bottom - 5)}v10" for at, _ in ticks), "ink", 1.5)
        for at, label in ticks:
            # A label at the edge of the paper stays on it.
            x, half = self.x(at), width_of(label) / 2
            x = min(max(x, half), self.drawing.width - half)
            self.drawing.text(x, self.bottom + 22, label, anchor="middle")
        if title:
            self.drawing.text(self.left, self.bottom + 42, title)

    def levels(self, ticks: Sequence[tuple[float, str]], dash: str = "2 4", rule: bool = True) -> None:
        """Name a few heights at the left, each with a dotted rule across the paper."""
        for at, label in ticks:
            y = self.y(at)
            if rule and y < self.bottom:
                self.drawing.path(f"M{_n(self.left)} {_n(y)}H{_n(self.right)}", "tick", 1, dash)
            self.drawing.text(self.left - 8, y + 4.5, label, anchor="end")


def linear(low: float, high: float) -> Scale:
    """Map low..high to 0..1."""
    return lambda value: (value - low) / (high - low)


def logarithmic(low: float, high: float) -> Scale:
    """Map low..high to 0..1 by their logarithms."""
    return lambda value: math.log(value / low) / math.log(high / low)


def power(base: int, exponent: int) -> str:
    """Write 2⁻¹⁴."""
    return f"{base}{str(exponent).translate(SUPERSCRIPTS)}"


def scientific(value: float, digits: int = 1) -> str:
    """Write 2 × 10⁻⁵, or 10⁻⁴ where the first digit is a bare 1."""
    mantissa, exponent = f"{value:.{digits - 1}e}".split("e")
    tens = power(10, int(exponent))
    return tens if float(mantissa) == 1 else f"{mantissa} × {tens}"


def plain(value: float) -> str:
    """Write 0.00002, never 2e-05."""
    return f"{value:.12f}".rstrip("0").rstrip(".")


def width_of(words: str, size: float = TEXT) -> float:
    """Estimate how wide a line of text is in an ordinary sans-serif face; rather a little too wide than too narrow."""
    return size * sum(_advance(letter) for letter in words.replace("*", ""))


def _advance(letter: str) -> float:
    if unicodedata.combining(letter):
        return 0
    if unicodedata.east_asian_width(letter) in "WF":
        return 1
    if letter in " ijl.,:;'’|!()[]/":
        return 0.33
    if letter in "mwMW":
        return 0.9
    if letter in "⁻⁰¹²³⁴⁵⁶⁷⁸⁹":
        return 0.4
    return 0.7 if letter.isupper() else 0.58


def _n(value: float) -> str:
    """Write a coordinate with a tenth of a pixel, without a needless zero."""
    return f"{round(value, 1) + 0.0:.1f}".removesuffix(".0")


def _lines(points: Sequence[Point]) -> str:
    return "M" + "L".join(f"{_n(x)} {_n(y)}" for x, y in points)


def _thin_out(points: list[Point], tolerance: float = 0.12) -> list[Point]:
    """Drop points nearer than `tolerance` to the line between their neighbours (Douglas and Peucker)."""
    keep = [False] * len(points)
    keep[0] = keep[-1] = True
    spans = [(0, len(points) - 1)]
    while spans:
        first, last = spans.pop()
        (ax, ay), (bx, by) = points[first], points[last]
        length = math.hypot(bx - ax, by - ay)
        far, where = tolerance, 0
        for i in range(first + 1, last):
            px, py = points[i]
            if length:
                away = abs((bx - ax) * (ay - py) - (ax - px) * (by - ay)) / length
            else:
                away = math.hypot(px - ax, py - ay)
            if away > far:
                far, where = away, i
        if where:
            keep[where] = True
            spans += [(first, where), (where, last)]
    return [point for point, kept in zip(points, keep, strict=True) if kept]
