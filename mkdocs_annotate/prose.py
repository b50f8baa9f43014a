r"""How the Markdown of a row becomes HTML.

Comments are written for people who read the file, so the rules are tamer than Markdown's where those harm plain text:

* code, equations (`equations`) and doctests are taken out first, nothing in them is Markdown
* ``*one*`` and ``**two**`` stars emphasize, unless a star stands between two letters or digits (``2*3*4``) or nothing
  closes it (``*args, **kwargs``); underscores never do, so ``__init__`` and ``file_name`` are what they are
* a heading is ``## `` or more in front; a single ``#``, a line underlined with ``---`` and an indented line are text
* a line of nothing but ``---``, ``===`` or ``####`` is decoration: it ends a paragraph and is not shown; so are such
  marks at both ends of a line
* a list begins with ``- ``, ``* `` or a number of at most two digits, also right after a line of text; two spaces nest
* ``[text](target)`` is a link if the target looks like one, so ``x[i](j)`` is text; bare addresses become links
* an image that is a paragraph of its own is a figure; an SVG of the figures' folder is set into the page
* raw HTML is shown as it is typed; a link or image with a scheme other than those of `SCHEMES` loses its target
* a line break in a paragraph is a space, unless a Chinese or Japanese character stands on either side
"""

from __future__ import annotations

import html
import re
import textwrap
import xml.etree.ElementTree as etree  # noqa: N813
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from markdown import Markdown
from markdown.blockparser import BlockParser
from markdown.blockprocessors import BlockProcessor, BlockQuoteProcessor, OListProcessor
from markdown.extensions.tables import TableExtension
from markdown.inlinepatterns import InlineProcessor
from markdown.util import AtomicString

from . import code
from .equations import CJK, CLOSE, OPEN, EquationError, Insert, Katex, Piece, TexError, fill, pieces
from .rows import SourceError
from .symbols import Symbol, slots_of, tag_tex

SCHEMES = frozenset(["http", "https", "mailto", "ftp"])

Links = Callable[[str], str | None]
"""Turns the target of a link or figure as written (``adam.md#Adam``, ``figures/x.en.svg``) into its address seen from
the page, or None if there is no such target. Targets with a scheme, and bare fragments, never come here."""


@dataclass(frozen=True)
class Where:
    """Where a Markdown text stands: ``locate`` turns a character of it into line and column of a file, from 1."""

    path: str
    locate: Callable[[int], tuple[int, int]]

    def after(self, start: int) -> Where:
        """Say the same of a part of the text that begins at a character of it."""
        return Where(self.path, lambda offset: self.locate(start + offset))


@dataclass
class Context:
    """What the texts of one page in one language share."""

    katex: Katex
    language: str
    links: Links
    label: Callable[[str], str]
    """Turns a label of the interface into HTML."""
    figures_dir: Path | None = None
    symbols: Sequence[Symbol] = ()
    figures: dict[str, int] = field(default_factory=dict)
    """How often each figure has been set into the page."""
    problems: list[str] = field(default_factory=list)
    """What is wrong and yet no error: a sentence each, which begins with file, line and column."""


def render(markdown: str, where: Where, context: Context, headings: Sequence[str] = (), level: int = 3) -> str:
    """Make the HTML of a text; ``headings`` are the ids of its headings, ``level`` is that of ``## ``.

    Raises `EquationError` for TeX that KaTeX rejects and `SourceError` for a figure that is not there.
    """
    return _Text(markdown, where, context, headings, level).html()


def render_line(markdown: str, where: Where, context: Context) -> str:
    """Make the HTML of a title, caption or cell: without a paragraph around it."""
    made = render(markdown, where, context)
    return made[3:-4] if made.startswith("<p>") and made.endswith("</p>") and made.count("<p>") == 1 else made


def set_tex(tex: str, where: Where, context: Context) -> str:
    """Set one equation in a line of text."""
    return _Text("", where, context, (), 3).equation(Piece("inline", 0, len(tex), tex, 0))


def picture(target: str, caption: str, where: Where, context: Context) -> str:
    """Make what a figure shows; ``caption`` is the plain text for those who don't see it."""
    return _Text("", where, context, (), 3).image(target, caption).html


class _Reader(HTMLParser):
    """Reads the text of some HTML; of an equation it reads the MathML, without the TeX."""

    def __init__(self) -> None:
        super().__init__()
        self.text: list[str] = []
        self.silent = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        silent = tag in ("annotation", "svg", "pre") or ("class", "katex-html") in attrs
        self.silent += bool(self.silent or silent) and tag not in ("img", "br")

    def handle_endtag(self, tag: str) -> None:
        self.silent -= bool(self.silent)

    def handle_data(self, data: str) -> None:
        self.text += [] if self.silent else [data]


def plain(made: str) -> str:
    """Return the text of some HTML on one line, without figures and blocks of code; equations as their MathML reads."""
    reader = _Reader()
    reader.feed(made)
    return " ".join("".join(reader.text).split())


HEADING = re.compile(r"^(#{2,5}) (?=\S)(.*?)[ \t]*#*[ \t]*(?:\{#([A-Za-z][\w.:-]*)\})?[ \t]*$", re.MULTILINE)


def anchors(markdown: str) -> list[str]:
    """List the anchors that the headings of a text ask for: fixed ones (``{#name}``), or some made of their words."""
    blank = list(markdown)
    for piece in pieces(markdown):
        if piece.kind == "fence":
            blank[piece.start : piece.end] = " " * (piece.end - piece.start)
    return [match[3] or slug(match[2]) for match in HEADING.finditer("".join(blank))]


def slug(heading: str) -> str:
    """Make an anchor of the text of a heading: ``How far a step can go`` becomes ``how-far-a-step-can-go``."""
    words = re.findall(r"\w+", re.sub(r"\]\([^)]*\)|['\u2019]", "", heading.lower()))
    return "-".join(words) or "section"


# Before Markdown.

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\ue000\ue001]")
_RULER = re.compile(r"[ \t]*([-=*#~_+])\1{2,}[ \t]*")
_BANNER = re.compile(r"[ \t]*[-=*#~_]{3,}[ \t]+([^|]*?\S)[ \t]+[-=*#~_]{3,}[ \t]*")
_ITEM = re.compile(r"( *)([-*+]|\d{1,2}[.)])( +)(?=\S)")


def _normal(text: str) -> str:
    """Write lists as Python-Markdown wants them, and drop what is decoration."""
    lines: list[str] = []
    open_items: list[tuple[int, int]] = []  # where the mark and the text of each open list item stand
    paragraph = False  # whether the line before is text
    for line in text.expandtabs(4).split("\n"):
        line = line.rstrip()
        if banner := _BANNER.fullmatch(line):
            line = banner[1]
        if not line or _RULER.fullmatch(line):
            lines.append("")
            paragraph = False
            continue
        indent = len(line) - len(line.lstrip())
        item = _ITEM.match(line)
        if item and paragraph and not open_items and item[2] not in ("-", "*", "1.", "1)"):
            item = None
        if item:
            while open_items and indent < open_items[-1][1]:
                open_items.pop()
            if paragraph and not open_items and not _ITEM.match(lines[-1]):
                lines.append("")
            mark = item[2] if item[2] in "-*+" else item[2].replace(")", ".")
            lines.append(f"{' ' * 4 * len(open_items)}{mark} {line[item.end() :]}")
            open_items.append((indent, item.end() if len(item[3]) < 5 else item.end(2) + 1))
        else:
            while open_items and indent < open_items[-1][1] and not paragraph:
                open_items.pop()
            lines.append(" " * 4 * len(open_items) + line.lstrip())
        paragraph = True
    return "\n".join(lines)


# Markdown itself: Python-Markdown with these parts in place of its own.


class _Heading(BlockProcessor):
    def test(self, parent: etree.Element, block: str) -> bool:
        return bool(HEADING.search(block))

    def run(self, parent: etree.Element, blocks: list[str]) -> None:
        block = blocks.pop(0)
        match = HEADING.search(block)
        assert match is not None
        if block[: match.start()].strip():
            self.parser.parseBlocks(parent, [block[: match.start()].rstrip()])
        text = _current(self.parser.md)
        heading = etree.SubElement(parent, f"h{min(6, text.level + len(match[1]) - 2)}")
        heading.text = match[2]
        anchor = text.next_anchor()
        if anchor:
            heading.set("id", anchor)
        if block[match.end() :].strip():
            blocks.insert(0, block[match.end() :].lstrip("\n"))


_LABEL = r"((?:[^\[\]\\]|\\.|\[(?:[^\[\]\\]|\\.)*\])*)"
_TARGET = r"\(\s*(<[^<>\n]*>|(?:[^\s()<>]|\([^\s()]*\))*)(?:\s+(?:\"[^\"]*\"|'[^']*'))?\s*\)"
_ADDRESS = r"<((?:https?|ftp)://[^\s<>]+)>|https?://[A-Za-z0-9\-._~:/?#@!$&'()*+,;=%]+"
_FIGURE = re.compile(rf"!\[{_LABEL}\]{_TARGET}\s*", re.DOTALL)


class _Figure(BlockProcessor):
    def test(self, parent: etree.Element, block: str) -> bool:
        return bool(_FIGURE.fullmatch(block.strip()))

    def run(self, parent: etree.Element, blocks: list[str]) -> None:
        match = _FIGURE.fullmatch(blocks.pop(0).strip())
        assert match is not None
        text = _current(self.parser.md)
        figure = etree.SubElement(parent, "figure")
        figure.text = AtomicString(text.keep(text.image(match[2], match[1])))
        if match[1].strip():
            etree.SubElement(figure, "figcaption").text = match[1].strip()


class _Quote(BlockQuoteProcessor):
    RE = re.compile(r"(^|\n)[ ]{0,3}>[ ](.*)")


class _Numbers(OListProcessor):
    LAZY_OL = False

    def __init__(self, parser: BlockParser) -> None:
        super().__init__(parser)
        self.RE = re.compile(r"^[ ]{0,3}\d{1,2}\.[ ]+(.*)")
        self.CHILD_RE = re.compile(r"^[ ]{0,3}((\d{1,2}\.)|[*+-])[ ]+(.*)")


Found = tuple[etree.Element | None, int | None, int | None]


class _Link(InlineProcessor):
    def handleMatch(self, m: re.Match[str], data: str) -> Found:  # type: ignore[override]  # noqa: N802
        target = m[2].strip("<>")
        if not re.search(r"[/.:#]", target):
            return None, None, None
        address = _current(self.md).address(target)
        element = etree.Element("a" if address else "span")
        if address:
            element.set("href", address)
        element.text = m[1]
        return element, m.start(0), m.end(0)


class _Image(InlineProcessor):
    def handleMatch(self, m: re.Match[str], data: str) -> Found:  # type: ignore[override]  # noqa: N802
        address = _current(self.md).address(m[2].strip("<>"))
        if not address:
            element = etree.Element("span")
            element.text = m[1]
        else:
            element = etree.Element("img", {"src": address, "alt": m[1], "loading": "lazy"})
        return element, m.start(0), m.end(0)


class _Address(InlineProcessor):
    def handleMatch(self, m: re.Match[str], data: str) -> Found:  # type: ignore[override]  # noqa: N802
        address = m[1] or m[0].rstrip("'.,;:!?*_")
        while not m[1] and address.endswith(")") and address.count(")") > address.count("("):
            address = address[:-1].rstrip("'.,;:!?*_")
        element = etree.Element("a", {"href": address})
        element.text = AtomicString(address)
        return element, m.start(0), m.end(0) if m[1] else m.start(0) + len(address)


class _Emphasis(InlineProcessor):
    def __init__(self, pattern: str, tags: Sequence[str], md: Markdown) -> None:
        super().__init__(pattern, md)
        self.tags = tags

    def handleMatch(self, m: re.Match[str], data: str) -> Found:  # type: ignore[override]  # noqa: N802
        outer = inner = etree.Element(self.tags[0])
        for tag in self.tags[1:]:
            inner = etree.SubElement(inner, tag)
        inner.text = m[1]
        return outer, m.start(0), m.end(0)


def _starred(stars: str, content: str) -> str:
    """Say what is emphasized by stars: they don't stand between two letters or digits, and white space is outside."""
    mark = re.escape(stars)
    first = rf"(?=[\w\"'(\[{{+\u2212\u2018\u201c\u3008-\u3011\uff08\uff3b\u2460-\u2473\x02{OPEN}-])"
    opening = rf"(?<![*\\])(?:(?<![A-Za-z0-9_]){mark}|{mark}(?![A-Za-z0-9_])){first}"
    closing = rf"(?<=[^\s*]){mark}(?!\*)(?:(?![A-Za-z0-9_])|(?<=[^A-Za-z0-9_]{mark}))"
    return f"{opening}({content}){closing}"


_INLINE = """
    backtick reference link image_link image_reference short_reference short_image_ref autolink automail linebreak html
    em_strong em_strong2 not_strong
"""


@cache
def _markdown() -> Markdown:
    md = Markdown(extensions=[TableExtension()], output_format="html")
    md.preprocessors.deregister("html_block")
    blocks = md.parser.blockprocessors
    for name in ("code", "setextheader", "hr", "reference", "hashheader", "quote", "olist"):
        blocks.deregister(name)
    blocks.register(_Heading(md.parser), "heading", 70)
    blocks.register(_Figure(md.parser), "figure", 75)
    blocks.register(_Numbers(md.parser), "olist", 40)
    blocks.register(_Quote(md.parser), "quote", 20)
    inline = md.inlinePatterns
    for name in [item for item in _INLINE.split() if item in inline]:
        inline.deregister(name)
    inline.register(_Image(rf"!\[{_LABEL}\]{_TARGET}", md), "image", 165)
    inline.register(_Link(rf"\[{_LABEL}\]{_TARGET}", md), "link", 160)
    inline.register(_Address(_ADDRESS, md), "address", 120)
    inline.register(_Emphasis(_starred("***", r"[^*]+?"), ("strong", "em"), md), "both", 62)
    inline.register(_Emphasis(_starred("**", r".+?"), ("strong",), md), "strong", 61)
    inline.register(_Emphasis(_starred("*", r"[^*]+?"), ("em",), md), "em", 60)
    return md


def _current(md: Any) -> _Text:
    """Return the text that is being made."""
    text = md.annotated
    assert isinstance(text, _Text)
    return text


# After Markdown.

_TAGS = r"(?:</?(?:em|strong|a|span)\b[^<>]*>)*"
_BREAK = re.compile(rf"([^\s<>])({_TAGS})[ \t]*\n[ \t]*(?=({_TAGS})([^\s<>]))")
_WIDE = re.compile(f"[{CJK}]")


def joined(made: str) -> str:
    """Join the lines of paragraphs: a break beside a Chinese or Japanese character is nothing."""

    def join(match: re.Match[str]) -> str:
        wide = _WIDE.match(match[1]) or _WIDE.match(match[4])
        return f"{match[1]}{match[2]}{'' if wide else chr(10)}"

    return _BREAK.sub(join, made)


_PROLOG = re.compile(r"\A\ufeff?\s*(?:<\?xml.*?\?>|<!DOCTYPE[^>]*>|<!--.*?-->|\s)*", re.DOTALL)


@cache
def _svg(path: Path, changed: int) -> str:
    drawing = _PROLOG.sub("", path.read_text("utf-8", errors="replace")).strip()
    return drawing.replace(' xmlns="http://www.w3.org/2000/svg"', "", 1)  # HTML knows


class _Text:
    """A text on its way from Markdown to HTML."""

    def __init__(self, markdown: str, where: Where, context: Context, anchors: Sequence[str], level: int) -> None:
        self.markdown = _CONTROL.sub("", markdown)
        self.where = where
        self.context = context
        self.level = level
        self.slots = slots_of(context.symbols)
        self._anchors = iter(anchors)
        self._inserts: list[Insert] = []

    def html(self) -> str:
        parts: list[str] = []
        done = 0
        for piece in pieces(self.markdown):
            parts.append(self.markdown[done : piece.start])
            parts.append("$" if piece.kind == "dollar" else self.keep(self.insert(piece)))
            done = piece.end
        parts.append(self.markdown[done:])
        md = _markdown()
        md.reset()
        md.annotated = self  # type: ignore[attr-defined]
        made = joined(md.convert(_normal("".join(parts))))
        made = made.replace("<table>", '<div class="wide"><table>').replace("</table>", "</table></div>")
        before = ""
        while made != before:  # again, for a caption may hold an equation
            before, made = made, fill(made, lambda number, literally: self._inserts[number])
        return made.strip()

    def keep(self, insert: Insert) -> str:
        """Keep something away from Markdown; return what stands for it."""
        self._inserts.append(insert)
        return f"{OPEN}{len(self._inserts) - 1}{CLOSE}"

    def next_anchor(self) -> str:
        return next(self._anchors, "")

    def insert(self, piece: Piece) -> Insert:
        """Make the HTML of what Markdown must not see."""
        if piece.kind == "fence":
            language, _, _ = piece.info.partition(" ")
            body = textwrap.dedent(piece.text)
            return Insert(code.fence(body, language.strip("{.}"), self.slots), piece.text, True)
        if piece.kind == "code":
            text = " ".join(piece.text.split("\n"))
            text = text[1:-1] if text.startswith(" ") and text.endswith(" ") and text.strip() else text
            return Insert(f"<code>{code.inline(text, self.slots)}</code>", text, False)
        return Insert(self.equation(piece), piece.text, piece.kind == "display")

    def equation(self, piece: Piece) -> str:
        tagged = tag_tex(piece.text, self.context.symbols)
        try:
            return self.context.katex.render(piece.text, piece.kind == "display", tagged)
        except TexError as error:
            line, column = self.where.locate(piece.text_start + error.position)
            raise EquationError(self.where.path, line, column, error.message, piece.text) from None

    def address(self, target: str) -> str:
        """Return where a link leads, or nothing if it leads nowhere or somewhere unsafe."""
        target = re.sub(r"[\x00-\x20]", "", html.unescape(target))
        scheme = re.match(r"([A-Za-z][A-Za-z0-9+.-]*):", target)
        if scheme:
            return target if scheme[1].lower() in SCHEMES else ""
        if target.startswith(("#", "//")):
            return target
        address = self.context.links(target)
        if address is None:
            line, column = self.where.locate(max(0, self.markdown.find(target)))
            problem = f"{self.where.path}:{line}:{column}: the link to {target} leads nowhere, so it is shown as text."
            self.context.problems.append(problem)
        return address or ""

    def image(self, target: str, caption: str) -> Insert:
        """Make what a figure shows: an SVG of the figures' folder, in the language of the page, or an image."""
        target = target.strip("<>")
        folder = self.context.figures_dir
        if folder is None or not target.endswith(".svg") or not target.startswith(f"{folder.name}/"):
            address = html.escape(self.address(target))
            return Insert(
                f'<img src="{address}" alt="{html.escape(caption)}" loading="lazy">' if address else "", caption, True
            )
        name = target.removeprefix(f"{folder.name}/").removesuffix(".svg")
        if name.startswith("/") or ".." in name.split("/"):
            raise self.wrong_figure(target, f"the figure {target} is not inside {folder.as_posix()}; move it there.")
        candidates = [
            folder / f"{name}.{self.context.language}.svg",
            folder / f"{name}.svg",
            *sorted(folder.glob(f"{name}.*.svg")),
        ]
        path = next((path for path in candidates if path.is_file()), None)
        if path is None:
            wanted = f"{name}.{self.context.language}.svg or {name}.svg"
            raise self.wrong_figure(target, f"there is no figure {wanted} in {folder.as_posix()}.")
        if not _svg(path, path.stat().st_mtime_ns).startswith("<svg"):
            raise self.wrong_figure(target, f"the figure {path.as_posix()} is no SVG in UTF-8; save it as one.")
        return Insert(self.zoom(path, f"{folder.name}/{path.relative_to(folder).as_posix()}"), caption, True)

    def wrong_figure(self, target: str, message: str) -> SourceError:
        line, column = self.where.locate(max(0, self.markdown.find(target)))
        return SourceError(self.where.path, line, column, message)

    def zoom(self, path: Path, target: str) -> str:
        """Set an SVG into the page, as a link to itself that opens it large."""
        drawing = _svg(path, path.stat().st_mtime_ns)
        again = self.context.figures[target] = self.context.figures.get(target, 0) + 1
        if again > 1:
            drawing = re.sub(r'(\bid="|="#|url\(#|labelledby=")([^")]+)', rf"\1\2-{again}", drawing)
        address, label = self.address(target), self.context.label("Open large")
        return f'<a class="zoom" href="{html.escape(address)}" title="{label}">{drawing}</a>' if address else drawing
