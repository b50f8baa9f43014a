"""How TeX becomes HTML: equations are found in Markdown, and KaTeX sets them in one long-lived Node process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self


class EquationError(Exception):
    """An equation that KaTeX rejects; its text is one sentence that begins with ``path:line:column``."""

    def __init__(self, path: str, line: int, column: int, message: str, tex: str) -> None:
        super().__init__(f"{path}:{line}:{column}: {message}")
        self.path = path
        self.line = line
        self.column = column
        self.message = message
        self.tex = tex


class KatexError(Exception):
    """KaTeX can't be run at all; its text says what to install."""


@dataclass(frozen=True)
class Equation:
    """An equation as it stands in Markdown; line and column count from 0, and point at the first character of the TeX."""

    tex: str
    display: bool
    line: int
    column: int


class Katex:
    """Sets equations: ``with Katex(root / "node_modules/katex", root / ".cache/katex.json") as katex: ...``.

    Node starts at the first equation that is not in the cache.
    """

    def __init__(self, folder: Path, cache: Path | None, timeout: float = 20.0) -> None:
        self.folder = folder
        self.cache = cache
        self.timeout = timeout

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def render(self, tex: str, display: bool) -> str:
        """Set one equation as HTML with MathML."""
        raise NotImplementedError

    def close(self) -> None:
        """Stop Node and save the cache."""


def take_out(markdown: str) -> tuple[str, list[Equation]]:
    """Replace the equations of a Markdown text by placeholders that Markdown leaves alone."""
    return markdown, []


def put_back(html: str, equations: Sequence[Equation], render: Callable[[Equation], str]) -> str:
    """Replace the placeholders in the HTML made from the Markdown by what ``render`` makes of each equation."""
    return html
