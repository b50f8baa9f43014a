"""How a page is put together: source, rows, translated rows, HTML."""

from __future__ import annotations

import hashlib
import html
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from . import origin
from .catalogue import Catalogue, Message
from .code import highlight
from .equations import Katex
from .head import Head, Part, read_head
from .heads import shorten
from .prose import HEADING, Context, Links, Where, anchors, picture, plain, render, render_line, set_tex
from .rows import LINE_ID, Row, SourceError, read_rows, read_source
from .symbols import Symbol, SymbolsError, read_symbols, slots_of


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
    """A section, a class or a function of the page."""

    id: str
    name: str
    """Plain text."""
    is_class: bool
    """Whether it stands in the first column: all but what stands inside of a class or function."""


@dataclass(frozen=True)
class RowHtml:
    """A row, ready to be printed."""

    id: str
    kind: str
    """``class``, ``def``, ``module`` (a section of the module's docstring, without code) or empty."""
    heading: str
    """HTML: the name of a class or function, or the heading of a section; may be empty."""
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
    todo_count: int
    """Texts that are not yet translated, head and rows together."""
    head_todo: frozenset[str]
    """The pieces of the head that are not yet translated: ``title``, ``lede``, ``paper``, ``use``, ``dont``,
    ``figure``, ``symbols``."""
    anchors: frozenset[str]
    """What a link to the page can end at: rows and headings."""
    problems: tuple[str, ...]
    """What is wrong and yet no error (links that lead nowhere): a sentence each, with file, line and column."""


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
    source = _read(source_path, name)
    page = _Page(
        source, Context(katex, language, links or _beside(name), label, figures_dir, source.symbols), catalogue
    )
    return page.made()


def messages(source_path: Path, name: str) -> list[Message]:
    """List what the catalogue of a page holds, in the order of the source."""
    source = _read(source_path, name)
    texts = sorted((text for text in source.texts if text.markdown), key=lambda text: text.where.locate(0))
    made = {(text.context, text.markdown): text for text in texts}
    return [
        Message(text.context, text.markdown, f"{text.where.path}:{text.where.locate(0)[0]}") for text in made.values()
    ]


def digests(source_path: Path, name: str) -> list[tuple[str, str]]:
    """List the anchors of a page, each with a digest of the prose and code that it stands for."""
    source = _read(source_path, name)
    return [(row.anchor, digest(row.prose, row.code)) for row in source.rows]


def digest(prose: str, code: Sequence[str]) -> str:
    """Digest of a row; white space at the ends of lines does not count."""
    text = "\n".join(line.rstrip() for line in (*prose.split("\n"), "", *code)).strip()
    return hashlib.sha256(text.encode()).hexdigest()[:12]


# What a source says, whatever the language.


@dataclass(frozen=True)
class _Written:
    """A text that can be translated, and where it stands."""

    context: str
    markdown: str
    where: Where


@dataclass(frozen=True)
class _Row:
    """A row of the page: a row of the source, or a section of the module's docstring."""

    anchor: str
    kind: str
    name: str
    qualname: str
    prose: str
    where: Where
    numbers: tuple[int, ...]
    code: tuple[str, ...]
    headings: tuple[str, ...]


@dataclass
class _Source:
    path: Path
    name: str
    lines: list[str]
    head: Head
    head_where: Where
    symbols: list[Symbol]
    rows: list[_Row]

    def part(self, piece: str, part: Part) -> _Written:
        return _Written(f"{self.name}#{piece}", part.text, _within(self.head_where, part))

    def meaning(self, symbol: Symbol) -> _Written:
        return _Written(f"{self.name}#symbol {symbol.tex}", symbol.meaning, self.symbol_where(symbol, symbol.meaning))

    def kept(self, symbol: Symbol) -> _Written:
        """What a symbol is kept as; the name of a format is the same in every language."""
        words = re.search(r"[a-z]{2}", symbol.kept)
        return _Written(f"{self.name}#kept" if words else "", symbol.kept, self.symbol_where(symbol, symbol.kept))

    def symbol_where(self, symbol: Symbol, cell: str) -> Where:
        """Say where a cell of the line of a symbol stands."""
        block, lines = self.head.symbols, self.head.symbols.text.split("\n")
        line = lines[symbol.line]
        column = line.find(cell, 0 if cell == symbol.tex else line.find(symbol.tex) + len(symbol.tex))
        return self.head_where.after(block.start + sum(len(line) + 1 for line in lines[: symbol.line]) + max(0, column))

    def prose(self, row: _Row) -> _Written:
        return _Written(f"{self.name}:{row.anchor}", row.prose, row.where)

    @property
    def texts(self) -> list[_Written]:
        head = self.head
        parts = [self.part(piece, getattr(head, piece)) for piece in PIECES]
        symbols = [text for symbol in self.symbols for text in (self.meaning(symbol), self.kept(symbol))]
        return [text for text in (*parts, *symbols, *map(self.prose, self.rows)) if text.context]


PIECES = ("title", "lede", "paper", "use", "dont", "figure")


def _read(path: Path, name: str) -> _Source:
    status = path.stat()
    return _read_once(path, name, status.st_mtime_ns, status.st_size)


@lru_cache(maxsize=512)  # every language reads the same sources
def _read_once(path: Path, name: str, changed: int, size: int) -> _Source:
    text = read_source(path)
    shown = path.as_posix()
    lines = text.split("\n")
    rows = read_rows(text, shown)
    docstring = next((row for row in rows if row.kind == "module"), None)
    head = read_head(docstring.prose) if docstring else Head()
    head_where = (
        _where(shown, lines, docstring.prose, docstring.prose_line) if docstring else Where(shown, lambda _: (1, 1))
    )
    try:
        symbols = read_symbols(head.symbols.text)
    except SymbolsError as error:
        start = sum(len(line) + 1 for line in head.symbols.text.split("\n")[: error.line])
        raise SourceError(shown, *head_where.locate(head.symbols.start + start), error.message) from None
    return _Source(
        path,
        name,
        lines,
        head,
        head_where,
        symbols,
        _page_rows(rows, head, head_where, lines, shown),
    )


def _within(where: Where, part: Part) -> Where:
    """Say where a part of the docstring stands."""
    return Where(where.path, lambda offset: where.locate(part.origin(offset)))


def _where(path: str, lines: list[str], markdown: str, first: int) -> Where:
    """Say where a text stands that was cut out of some lines and dedented."""

    def locate(offset: int) -> tuple[int, int]:
        start = markdown.rfind("\n", 0, offset) + 1
        number = first + markdown.count("\n", 0, offset)
        indent = lines[number - 1].find(markdown[start:].split("\n", 1)[0]) if number <= len(lines) else 0
        return number, max(indent, 0) + offset - start + 1

    return Where(path, locate)


def _page_rows(rows: list[Row], head: Head, head_where: Where, lines: list[str], path: str) -> list[_Row]:
    """Put the sections of the docstring in its place, and give each heading its anchor."""
    taken = {row.anchor for row in rows if row.kind != "module"} | {"top"}
    made: list[_Row] = []
    blank: tuple[tuple[int, ...], tuple[str, ...]] = ((), ())

    def free(anchor: str) -> str:
        number, new = 1, anchor
        while new in taken or LINE_ID.fullmatch(new):
            number += 1
            new = f"{anchor}-{number}"
        taken.add(new)
        return new

    for row in rows:
        if row.kind == "module":
            for part in head.body:
                ids = list(anchors(part.text))
                section = ids.pop(0) if HEADING.match(part.text) else "module"
                anchor = free(section)
                headings = tuple(map(free, ids))
                made.append(_Row(anchor, "module", "", "", part.text, _within(head_where, part), (), (), headings))
            blank = row.numbers, row.code  # blank lines: they go to the row after it
            continue
        headings = tuple(map(free, anchors(row.prose)))
        where = _where(path, lines, row.prose, row.prose_line)
        numbers, code = blank[0] + row.numbers, blank[1] + row.code
        made.append(_Row(row.anchor, row.kind, row.name, row.qualname, row.prose, where, numbers, code, headings))
        blank = (), ()
    if blank[0]:
        made.append(_Row(free("module"), "", "", "", "", head_where, *blank, ()))
    return made


def _imported(path: Path, text: str) -> dict[str, str]:
    """Find the names that a module imports from its own package and that have a row on another page: links to them."""
    top = path.parent
    while (top.parent / "__init__.py").exists():
        top = top.parent
    module = ".".join((top.name, *path.relative_to(top).with_suffix("").parts))
    found: dict[str, str] = {}
    for name, home in origin.homes([text], top, module).items():
        source, _, anchor = home.partition("#")
        if inner := source.split(".")[1:]:
            found[name] = f"{'/'.join(inner)}.md#{anchor}"
    return found


def _beside(name: str) -> Links:
    """Where the pages of a package are, if nobody says otherwise: a folder each."""
    up = "../" * (name.count("/") + 1)

    def address(target: str) -> str:
        path, mark, anchor = target.partition("#")
        return up + re.sub(r"\.(md|py)$", "/", path) + mark + anchor

    return address


# The page in one language.


class _Page:
    def __init__(self, source: _Source, context: Context, catalogue: Catalogue | None) -> None:
        self.source = source
        self.context = context
        self.catalogue = catalogue
        self.slots = slots_of(source.symbols)
        imported = _imported(source.path, "\n".join(source.lines))  # which changes when other modules do
        self.links = {name: address for name, target in imported.items() if (address := context.links(target))}
        self.todo = 0

    def translated(self, text: _Written) -> tuple[str, Where, bool]:
        """Return the text in the language of the page, where it stands, and whether it is not yet translated."""
        if self.catalogue is None or not text.markdown or not text.context:
            return text.markdown, text.where, False
        entry = self.catalogue.lookup(text.context, text.markdown)
        item = self.catalogue.item(text.context, text.markdown)
        if entry.state != "ok" or item is None:
            self.todo += 1
            return text.markdown, text.where, True
        return entry.text, Where(self.catalogue.path.as_posix(), lambda offset: (item.line_at(offset), 1)), False

    def made(self) -> AnnotatedPage:
        source, head = self.source, self.source.head
        todo: set[str] = set()
        made: dict[str, str] = {}
        for piece in PIECES:
            markdown, where, missing = self.translated(source.part(piece, getattr(head, piece)))
            line = piece in ("title", "figure")
            made[piece] = (render_line if line else render)(markdown, where, self.context) if markdown else ""
            todo |= {piece} if missing else set()
        rule = render(head.rule.text, source.head_where.after(head.rule.start), self.context) if head.rule else ""
        symbols = tuple(self.symbol(symbol, todo) for symbol in source.symbols)
        figure = self.figure(made["figure"]) if head.figure_target else ""
        rows = tuple(self.row(row) for row in source.rows)
        name = source.name.replace("/", ".")
        title = plain(made["title"]) or name
        return AnnotatedPage(
            name=source.name,
            title=title,
            description=shorten(plain(made["lede"]) or title),
            title_html=made["title"] or html.escape(name),
            lede=made["lede"],
            paper=made["paper"],
            rule=rule,
            use=made["use"],
            dont=made["dont"],
            figure=figure,
            figure_caption=made["figure"],
            symbols=symbols,
            outline=self.outline(rows),
            rows=rows,
            todo_count=self.todo,
            head_todo=frozenset(todo),
            anchors=frozenset(anchor for row in source.rows for anchor in (row.anchor, *row.headings)),
            problems=tuple(self.context.problems),
        )

    def symbol(self, symbol: Symbol, todo: set[str]) -> SymbolHtml:
        where = self.source.symbol_where(symbol, symbol.tex)
        context = replace(self.context, symbols=())
        meaning, meaning_where, missing = self.translated(self.source.meaning(symbol))
        kept, kept_where, missing_too = self.translated(self.source.kept(symbol))
        todo |= {"symbols"} if missing or missing_too else set()
        meaning_html = render_line(meaning, meaning_where, context)
        return SymbolHtml(
            slot=symbol.slot,
            tex=set_tex(symbol.tex, where, context),
            code=symbol.code,
            meaning=meaning_html,
            kept=render_line(kept, kept_where, context),
            meaning_text=plain(meaning_html),
        )

    def figure(self, caption: str) -> str:
        target = self.source.head.figure_target
        return picture(target.text, plain(caption), self.source.head_where.after(target.start), self.context)

    def row(self, row: _Row) -> RowHtml:
        markdown, where, todo = self.translated(self.source.prose(row))
        heading = html.escape(row.name)
        if row.kind == "module" and (match := HEADING.match(markdown)):
            heading = render_line(match[2], where.after(match.start(2)), self.context)
            rest = len(markdown) - len(markdown[match.end() :].lstrip())
            markdown, where = markdown[rest:], where.after(rest)
        level = 2 if row.kind == "module" else 3
        return RowHtml(
            id=row.anchor,
            kind=row.kind,
            heading=heading,
            prose=render(markdown, where, self.context, row.headings, level) if markdown else "",
            code=highlight(row.code, row.numbers, self.slots, self.links) if row.code else "",
            todo=todo,
        )

    def outline(self, rows: Sequence[RowHtml]) -> tuple[OutlineItem, ...]:
        items: list[OutlineItem] = []
        seen: set[str] = set()
        for row, made in zip(self.source.rows, rows, strict=True):
            if not made.heading or (row.qualname and row.qualname in seen):
                continue
            seen.add(row.qualname)
            items.append(OutlineItem(made.id, plain(made.heading), is_class="." not in row.qualname))
        return tuple(items)
