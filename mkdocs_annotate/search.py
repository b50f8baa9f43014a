"""What the search finds: a page is cut at its rows and headings, and each piece is an entry under its own anchor.

The index is a list of texts. Cutting words is done by `search.js`, for query and text alike.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser

Entry = dict[str, str]

_VOID = {"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"}
_SILENT_TAGS = {"script", "style", "svg", "math", "button", "nav", "dialog"}
_SILENT_CLASSES = {"hash", "ln", "label", "source", "headerlink", "copy", "jp-InputPrompt", "jp-OutputPrompt"}
_HEADINGS = {"h1", "h2", "h3", "h4", "h5", "h6"}
_BLOCKS = {
    "p",
    "li",
    "dd",
    "dt",
    "td",
    "th",
    "tr",
    "pre",
    "div",
    "section",
    "figure",
    "figcaption",
    "blockquote",
    *_HEADINGS,
}


@dataclass
class _Piece:
    anchor: str
    title: list[str] = field(default_factory=list)
    text: list[str] = field(default_factory=list)


class _Cutter(HTMLParser):
    """Cuts HTML at rows (`<section class="row" id>`) and, outside of them, at headings with an id."""

    def __init__(self) -> None:
        super().__init__()
        self.pieces = [_Piece("")]
        self.silent = 0
        self.stack: list[str] = []
        self.in_row = 0
        self.in_title = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Open a piece, or step over what isn't text."""
        if tag in _VOID:
            self._put(" ")
            return
        self.stack.append(tag)
        known = {name: value or "" for name, value in attrs}
        classes = set(known.get("class", "").split())
        depth = len(self.stack)
        if self.silent:
            return
        if "katex" in classes:
            self._put("…")
        if tag in _SILENT_TAGS or "katex" in classes or classes & _SILENT_CLASSES:
            self.silent = depth
        elif tag == "section" and "row" in classes and known.get("id"):
            self.pieces.append(_Piece(known["id"]))
            self.in_row = depth
        elif tag in _HEADINGS:
            if known.get("id") and not self.in_row and tag != "h1":
                self.pieces.append(_Piece(known["id"]))
            if not self.pieces[-1].title:
                self.in_title = depth
        if tag in _BLOCKS:
            self._put(" ")

    def handle_endtag(self, tag: str) -> None:
        """Leave what a tag opened."""
        if tag not in self.stack:
            return
        while self.stack:
            depth = len(self.stack)
            open_tag = self.stack.pop()
            self.silent = 0 if depth == self.silent else self.silent
            self.in_row = 0 if depth == self.in_row else self.in_row
            self.in_title = 0 if depth == self.in_title else self.in_title
            if open_tag == tag:
                break
        if tag in _BLOCKS:
            self._put(" ")

    def handle_data(self, data: str) -> None:
        """Keep text."""
        if not self.silent:
            self._put(data)

    def _put(self, text: str) -> None:
        piece = self.pieces[-1]
        (piece.title if self.in_title else piece.text).append(text)


def entries(url: str, title: str, html: str, lede: str = "") -> Iterator[Entry]:
    """Cut a page into what the search finds; the first entry is the page itself."""
    cutter = _Cutter()
    cutter.feed(html)
    cutter.close()
    first, *pieces = cutter.pieces
    yield {"location": url, "title": title, "text": _line([lede, " ", *first.text])}
    for piece in pieces:
        text = _line(piece.text)
        name = piece.anchor.rpartition("-")[0] if piece.anchor.rpartition("-")[2].isdigit() else piece.anchor
        heading = _line(piece.title) if "." not in name else name
        if name == "module":
            heading = title
        if text or heading:
            yield {"location": f"{url}#{piece.anchor}", "title": heading or name, "text": text}


def _line(parts: Iterable[str]) -> str:
    return " ".join("".join(parts).split())


def files(language: str, docs: Iterable[Entry]) -> dict[str, str]:
    """Return the files of one language's index: JSON, and for a site that is read from a disk the same as a script."""
    data = {"config": {"lang": [language]}, "docs": list(docs)}
    index = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    return {"search/search_index.json": index, "search/search_index.js": f"annotateIndex={index}"}
