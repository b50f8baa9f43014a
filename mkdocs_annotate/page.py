"""How a page is put together: source, rows, translated rows, HTML."""

from __future__ import annotations

import html
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from .catalogue import Catalogue, Message
from .equations import Katex
from .rows import Row, read_rows, read_source

Links = Callable[[str], str | None]
"""Turns the target of a link or figure as written in the source (``adam.md#Adam``, ``figures/x.en.svg``) into its address
seen from the page, or None if there is no such target. Targets with a scheme, and bare fragments, never come here."""


@dataclass(frozen=True)
class SymbolHtml:
    """One line of a page's table of symbols."""

    slot: int
    """1 to 8, the colour of the symbol; 0 without one."""
    tex: str
    """HTML of the symbol itself."""
    code: str
    """Plain text: its names in the code."""
    meaning: str
    """HTML."""
    kept: str
    """HTML: what the symbol is kept as; may be empty."""
    meaning_text: str
    """Plain text, for titles."""


@dataclass(frozen=True)
class OutlineItem:
    """A class, a function or a chapter of the page."""

    id: str
    name: str
    is_class: bool


@dataclass(frozen=True)
class RowHtml:
    """A row, ready to be printed."""

    id: str
    kind: str
    """``class``, ``def``, ``module`` (prose of the module's docstring) or empty."""
    heading: str
    """Plain text of the heading of a class or function row, else empty."""
    prose: str
    """HTML, may be empty."""
    code: str
    """HTML of the lines, may be empty."""
    todo: bool
    """Whether the prose is not yet translated, and therefore in the default language."""


@dataclass(frozen=True)
class AnnotatedPage:
    """Everything that a template needs to print the page of one module."""

    name: str
    title: str
    """Plain text."""
    description: str
    """Plain text of at most 160 characters."""
    title_html: str
    lede: str
    paper: str
    rule: str
    use: str
    dont: str
    figure: str
    """Inline SVG (or an image), with what opens it large; may be empty."""
    figure_caption: str
    symbols: tuple[SymbolHtml, ...]
    outline: tuple[OutlineItem, ...]
    rows: tuple[RowHtml, ...]
    file: str
    """Path of the source below the folder that holds its package, with forward slashes."""
    lines: int
    todo_count: int
    """Texts that are not yet translated, head and rows together."""
    head_todo: bool
    """Whether a piece of the head is not yet translated."""


def annotate(
    source_path: Path,
    *,
    name: str,
    language: str,
    catalogue: Catalogue | None,
    katex: Katex,
    figures_dir: Path | None,
    label: Callable[[str], str],
    links: Links | None = None,
) -> AnnotatedPage:
    """Make the page of a module in one language; ``catalogue`` is None for the default language.

    Raises `SourceError` or `EquationError`, whose text is one sentence that begins with file and line.
    """
    source = read_source(source_path)
    rows = read_rows(source, source_path.as_posix())
    made = tuple(
        RowHtml(
            id=row.anchor,
            kind=row.kind,
            heading=row.name,
            prose=f"<p>{html.escape(row.prose)}</p>" if row.prose else "",
            code="".join(
                f'<span class="line" id="L{number}"><a class="ln" href="#L{number}" tabindex="-1">{number}</a>'
                f"{html.escape(line)}\n</span>"
                for number, line in zip(row.numbers, row.code, strict=True)
            ),
            todo=False,
        )
        for row in rows
    )
    return AnnotatedPage(
        name=name,
        title=name,
        description=name,
        title_html=name,
        lede="",
        paper="",
        rule="",
        use="",
        dont="",
        figure="",
        figure_caption="",
        symbols=(),
        outline=tuple(
            OutlineItem(row.anchor, row.name, row.kind == "class") for row in rows if row.kind in ("class", "def")
        ),
        rows=made,
        file=source_path.name,
        lines=source.count("\n"),
        todo_count=0,
        head_todo=False,
    )


def messages(source_path: Path, name: str) -> list[Message]:
    """List what the catalogue of a page holds, in the order of the source."""
    path = source_path.as_posix()
    rows = read_rows(read_source(source_path), path)
    return [Message(f"{name}:{row.anchor}", row.prose, f"{path}:{row.prose_line}") for row in rows if row.prose]


def digests(source_path: Path, name: str) -> list[tuple[str, str]]:
    """List the anchors of a page with a digest of what each stands for."""
    raise NotImplementedError(name)


_ = (Mapping, Row)
