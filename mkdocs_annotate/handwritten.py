"""Hand-written pages: their equations and line breaks are set as on annotated pages, before and after Markdown."""

from __future__ import annotations

import html
import re
from collections.abc import Callable
from dataclasses import dataclass

from .equations import Equation, EquationError, Katex, TexError, put_back, take_out
from .errors import seen
from .prose import joined

_LITERAL = re.compile(r"(<pre\b.*?</pre>)", re.DOTALL)


@dataclass(frozen=True)
class Handwritten:
    """A page whose equations have been taken out."""

    markdown: str
    equations: list[Equation]
    path: str
    offset: int
    """Lines of front matter above the text."""

    def with_equations(self, made: str, katex: Katex, say: Callable[[str], None]) -> str:
        """Put the equations into the HTML; what KaTeX rejects is said in a sentence that begins with file and line."""

        def render(equation: Equation) -> str:
            try:
                return katex.render(equation.tex, equation.display)
            except TexError as error:
                before = equation.tex[: error.position]
                line, column = before.count("\n"), len(before) - before.rfind("\n") - 1
                column += 0 if line else equation.column
                number = self.offset + equation.line + line + 1
                say(str(EquationError(self.path, number, column + 1, error.message, equation.tex)))
                return f"<code>{html.escape(equation.tex)}</code>"

        parts = _LITERAL.split(made)
        parts[::2] = [joined(part) for part in parts[::2]]
        return put_back("".join(parts), self.equations, render)


def read(markdown: str, source: str, path: str) -> Handwritten:
    """Take the equations out of a page; `source` is the whole file, `markdown` what stands below its front matter."""
    text, equations = take_out(markdown)
    offset = source.rstrip("\n").count("\n") - markdown.rstrip("\n").count("\n")
    return Handwritten(text, equations, seen(path), offset)
