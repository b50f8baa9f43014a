"""What the search finds: a page is cut at its rows and headings, and each piece is an entry under its own anchor.

Material's search cuts the query and the texts at the same separator. Japanese has no spaces to cut at, so there words
are cut where the kind of character changes, as in 損失|スケーリング, and compounds of Chinese characters at the words
that the site itself uses alone; the cut is a space without width, which nobody sees.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass, field
from html import escape
from html.parser import HTMLParser
from typing import Any

Entry = dict[str, Any]

_SIGNS = r"\s\-,:;!?=\[\]()\"'`/{}<>|+*&@%^~"
_HAN, _KANA, _HIRAGANA = "一-鿿々〆", "ァ-ヺー", "ぁ-ゖ"
SEPARATOR = rf"[{_SIGNS}]+|\.(?!\d)"
_WORD = _HAN + _HIRAGANA
# Hiragana after Chinese characters are cut off if they only say what the word does in the sentence (損失を), and stay
# if they are part of the word (重み); one or two that stand alone are such an ending, too.
_ENDING = "から|まで|より|では|には|とは|だけ|など|です|する|した|して|します|[をがはにでとものへや]"
JAPANESE = (
    rf"(?:[{_SIGNS}\u200b-〿・！-／：-＠［-｀｛-･]"
    rf"|(?<=[{_WORD}])(?:{_ENDING})(?![{_HIRAGANA}])|(?<![{_WORD}])[{_HIRAGANA}]{{1,2}}(?![{_HIRAGANA}]))+|\.(?!\d)"
    rf"|(?<=[{_KANA}])(?![{_KANA}])|(?<![{_KANA}])(?=[{_KANA}])|(?<=[{_HIRAGANA}])(?![{_HIRAGANA}])"
    rf"|(?<![{_HAN}])(?=[{_HAN}])|(?<=[{_HAN}])(?![{_WORD}])|(?<![{_WORD}])(?=[{_HIRAGANA}])"
)
_BREAK, _CODE = "\f", "\v"

_VOID = {"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"}
_SILENT_TAGS = {"script", "style", "svg", "math", "button", "nav", "dialog"}
_SILENT_CLASSES = {"hash", "ln", "label", "source", "stamp", "headerlink", "copy", "jp-InputPrompt", "jp-OutputPrompt"}
_HEADINGS = {"h1", "h2", "h3", "h4", "h5", "h6"}
_CELLS = {"td", "th"}
_BLOCKS = {
    "p",
    "li",
    "dd",
    "dt",
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
        self.in_code = 0

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
            self._put(_BREAK)
        if tag in _CELLS:
            self._put(" ")
        if tag == "pre":
            self.in_code = depth
            self._put(_CODE)

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
            self.in_code = 0 if depth == self.in_code else self.in_code
            if open_tag == tag:
                break
        if tag in _BLOCKS:
            self._put(_BREAK)

    def handle_data(self, data: str) -> None:
        """Keep text."""
        if not self.silent:
            self._put(data.replace("\n", _BREAK + _CODE) if self.in_code else data)

    def _put(self, text: str) -> None:
        piece = self.pieces[-1]
        (piece.title if self.in_title else piece.text).append(text)


def entries(url: str, title: str, html: str, lede: str = "") -> Iterator[Entry]:
    """Cut a page into what the search finds; the first entry is the page itself."""
    cutter = _Cutter()
    cutter.feed(html)
    cutter.close()
    first, *pieces = cutter.pieces
    yield {"location": url, "title": escape(title, quote=False), "text": _blocks([lede, _BREAK, *first.text])}
    for piece in pieces:
        text = _blocks(piece.text)
        name = piece.anchor.rpartition("-")[0] if piece.anchor.rpartition("-")[2].isdigit() else piece.anchor
        heading = _line(piece.title) if "." not in name else name
        if name == "module":
            heading = title
        if text or heading:
            location = f"{url}#{piece.anchor}"
            yield {"location": location, "title": escape(heading or name, quote=False), "text": text}


def _line(parts: Iterable[str]) -> str:
    return " ".join("".join(parts).split())


def _blocks(parts: Iterable[str]) -> str:
    """Set paragraphs and lines of code apart: a result shows those in which the words were found."""
    made = []
    for block in "".join(parts).split(_BREAK):
        text = escape(_line([block]), quote=False)
        if text:
            made.append(f"<p><code>{text}</code></p>" if _CODE in block else f"<p>{text}</p>")
    return "".join(made)


def settings(language: str) -> dict[str, Any]:
    """Return the options of Material's search for a language; what they leave out is Material's to say."""
    if language == "ja":
        # Material's own Japanese cuts the texts with a dictionary that the query isn't cut with.
        return {"lang": ["en"], "separator": JAPANESE, "pipeline": ["stopWordFilter"]}
    return {"separator": SEPARATOR}


def prepare(finder: Any, language: str) -> Any:
    """Set the options of Material's search that mkdocs.yml leaves open, and return it."""
    for name, value in settings(language).items():
        if finder and finder.config[name] is None:
            finder.config[name] = value
    return finder


def add(finder: Any, meta: MutableMapping[str, Any], found: Iterable[Entry]) -> None:
    """Put the entries of a page into the index in place of those that Material's search would make of it."""
    wanted: Mapping[str, Any] = meta.get("search") or {}
    if finder and finder.config.enabled and not wanted.get("exclude"):
        boost = {"boost": wanted["boost"]} if "boost" in wanted else {}
        finder.search_index.entries += [entry | boost for entry in found]
    meta["search"] = {"exclude": True}


def finish(finder: Any, language: str) -> None:
    """Cut the Japanese compounds, once all pages are known."""
    if finder and finder.config.enabled and language == "ja":
        cut_compounds(finder.search_index.entries)


def cut_compounds(entries: list[Entry]) -> None:
    """Cut compounds of Chinese characters (半精度学習) into words that stand alone elsewhere (半精度, 学習)."""
    runs = {run for entry in entries for run in re.findall(f"[{_HAN}]+", entry["title"] + entry["text"])}

    def cut(run: str) -> list[str]:
        for k in range(len(run) - 2, 1, -1):
            if run[:k] in runs and (run[k:] in runs or len(cut(run[k:])) > 1):
                return [run[:k], *cut(run[k:])]
        return [run]

    made = {run: "\u200b".join(cut(run)) for run in sorted(runs)}
    for entry in entries:
        for name in ("title", "text"):
            entry[name] = re.sub(f"[{_HAN}]+", lambda found: made[found[0]], entry[name])
