"""Figures: the sheet takes them beside prose without code, and each says in its caption where it comes from."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from itertools import pairwise

_VOID = {"br", "hr", "img", "input", "wbr", "source"}
_ASIDE = re.compile(r'<(?:figure\b|div class="wide"|pre class="highlight")')


class _Blocks(HTMLParser):
    """Cuts HTML into its outermost elements."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=False)
        self.starts: list[int] = []
        self.depth = 0
        self._lines = [0]
        for line in html.split("\n"):
            self._lines.append(self._lines[-1] + len(line) + 1)
        self.feed(html)
        self.close()

    def _here(self) -> int:
        line, column = self.getpos()
        return self._lines[line - 1] + column

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note where an outermost element begins."""
        if not self.depth:
            self.starts.append(self._here())
        self.depth += tag not in _VOID

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Step over an element without content."""
        if not self.depth:
            self.starts.append(self._here())

    def handle_endtag(self, tag: str) -> None:
        """Leave an element."""
        self.depth -= tag not in _VOID


def blocks(html: str) -> list[str]:
    """Cut some HTML into its outermost elements."""
    edges = [0, *_Blocks(html).starts[1:], len(html)]
    return [html[start:end] for start, end in pairwise(edges) if end > start]


def beside(html: str) -> str:
    """Put each figure, table or example beside the text before it, or after it if it comes first; the order stays.

    What comes out are ``<div class="pair">``, each with ``<div class="text">`` and ``<div class="aside">``.
    """
    pairs: list[list[tuple[str, str]]] = []  # of each pair its parts, in order: kind and HTML
    for block in blocks(html):
        kind = "aside" if _ASIDE.match(block) else "text"
        last = pairs[-1] if pairs else []
        kinds = [each for each, _ in last]
        if kinds[-1:] == [kind]:
            last[-1] = (kind, last[-1][1] + block)
        elif kinds in (["text"], ["aside"], ["aside", "text"]):
            last.append((kind, block))
        else:
            pairs.append([(kind, block)])
    if len(pairs) > 1 and len(pairs[-1]) == 1 and len(pairs[-2]) == 2:
        rest = pairs.pop()
        pairs[-1] += rest
    if not any(kind == "aside" for pair in pairs for kind, _ in pair):
        return html
    return "".join(_pair(pair) for pair in pairs)


_METADATA = re.compile(r"<metadata>([^<]+)</metadata>\s*")  # a sentence; other programs write RDF, which nobody reads


def stamped(html: str) -> str:
    """Show below a figure's caption what its drawing says of its origin (`<metadata>`: device, versions, command)."""

    def stamp(figure: re.Match[str]) -> str:
        origin = _METADATA.search(figure[0])
        if not origin:
            return figure[0]
        made = f'<span class="stamp"><span>{origin[1].strip()}</span></span></figcaption>'
        rest = _METADATA.sub("", figure[0])
        if "</figcaption>" in rest:
            return rest.replace("</figcaption>", made)
        return rest.replace("</figure>", f"<figcaption>{made}</figure>")

    return re.sub(r"<figure>.*?</figure>", stamp, html, flags=re.DOTALL)


def _pair(parts: list[tuple[str, str]]) -> str:
    texts = sum(kind == "text" for kind, _ in parts)
    made = "".join(f'<div class="{kind}">{part}</div>' for kind, part in parts)
    return f'<div class="pair{" pair--text" if texts * 2 < len(parts) else ""}">{made}</div>'
