r"""The head of a page, written in the module's docstring.

All of it is optional, and stands before the first ``## `` heading::

    # Title
    What this is, in a paragraph: the lede.

    Paper: one paragraph

    $$ the rule, the first display that is a paragraph of its own $$

    **Use it when** ...

    **Don't when** ...

    ![caption](figures/name.svg)

    ```symbols
    m_t | m, exp_avg | first moment | FP32
    ```

Whatever else there is, is the body: a section for what has no heading, and one for each ``## `` heading. A docstring
that doesn't begin with a title has its first paragraph as lede, if it is plain text, and the rest as body.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from .equations import pieces

USE = re.compile(r"\*\*Use it when\*\*:?\s*")
DONT = re.compile(r"\*\*Don['\u2019]t when\*\*:?\s*")
_TITLE = re.compile(r"# (?=\S)(.*?)[ \t]*#*[ \t]*(?:\n|\Z)")
_PAPER = re.compile(r"Papers?:\s")
_FIGURE = re.compile(r"!\[((?:[^\[\]\\]|\\.|\[[^\[\]]*\])*)\]\(\s*([^\s()]+)\s*\)", re.DOTALL)
_NO_PARAGRAPH = re.compile(r"[ \t]*(?:#{2,} |[-*+] |\d{1,2}[.)] |> |>>> |\||!\[|```|~~~|\*\*Use it when|\*\*Don)")


@dataclass(frozen=True)
class Part:
    """A piece of the docstring, and the character of the docstring that it begins with."""

    text: str = ""
    start: int = 0
    jumps: tuple[tuple[int, int], ...] = ()
    """Where something was left out of the text: a character of it, and its place in the docstring."""

    def origin(self, offset: int) -> int:
        """Return the place in the docstring of a character of the text."""
        here, there = max(jump for jump in ((0, self.start), *self.jumps) if jump[0] <= offset)
        return there + offset - here

    def __bool__(self) -> bool:
        return bool(self.text)


@dataclass
class Head:
    """The pieces of a docstring."""

    title: Part = field(default_factory=Part)
    lede: Part = field(default_factory=Part)
    paper: Part = field(default_factory=Part)
    rule: Part = field(default_factory=Part)
    use: Part = field(default_factory=Part)
    dont: Part = field(default_factory=Part)
    figure: Part = field(default_factory=Part)
    """The caption of the head's figure."""
    figure_target: Part = field(default_factory=Part)
    symbols: Part = field(default_factory=Part)
    """The lines inside the block of symbols."""
    body: list[Part] = field(default_factory=list)
    """A section each; all but the first begin with a heading, and the first may."""


def read_head(docstring: str) -> Head:
    """Take a module's docstring apart."""
    head = Head()
    in_head = True
    rest: list[tuple[int, int]] = []  # of the body: where each block begins and ends
    for number, (start, end) in enumerate(_blocks(docstring)):
        text = docstring[start:end]
        if number == 0 and (match := _TITLE.match(text)):
            head.title = Part(match[1], start + match.start(1))
            start += match.end()
            text = docstring[start:end]
            if not text.strip():
                continue
        if text.startswith("## "):
            in_head = False
        if (symbols := _symbols(text)) and not head.symbols:
            head.symbols = Part(symbols.text, start + symbols.start)
        elif not (in_head and _take(head, text, start, leads=not rest)):
            rest.append((start, end))
    for start, end in rest:
        if not head.body or docstring.startswith("## ", start):
            head.body.append(Part(docstring[start:end], start))
        else:
            section = head.body[-1]
            text = f"{section.text}\n\n"
            jumps = (*section.jumps, (len(text), start))
            head.body[-1] = Part(text + docstring[start:end], section.start, jumps)
    return head


def _take(head: Head, text: str, start: int, *, leads: bool) -> bool:
    """Find out whether a block is a piece of the head that is still missing; keep it if so.

    A lede has to lead: nothing of the body may stand before it.
    """
    if not head.paper and _PAPER.match(text):
        head.paper = Part(text, start)
    elif not head.use and (match := USE.match(text)):
        head.use = Part(text[match.end() :], start + match.end())
    elif not head.dont and (match := DONT.match(text)):
        head.dont = Part(text[match.end() :], start + match.end())
    elif not head.figure_target and (match := _FIGURE.fullmatch(text)):
        head.figure = Part(match[1], start + match.start(1))
        head.figure_target = Part(match[2], start + match.start(2))
    elif not head.rule and _is_display(text):
        head.rule = Part(text, start)
    elif not head.lede and leads and not _NO_PARAGRAPH.match(text) and not _is_display(text):
        head.lede = Part(text, start)
    else:
        return False
    return True


def _blocks(text: str) -> list[tuple[int, int]]:
    """Cut a text at blank lines, but not inside of fences and displays; say where each block begins and ends."""
    whole = [(piece.start, piece.end) for piece in pieces(text) if piece.kind in ("fence", "display")]
    blocks: list[tuple[int, int]] = []
    start = 0
    for match in re.finditer(r"\n(?:[ \t]*\n)+|\n(?=## )|\Z", text):
        if any(begin < match.start() < end for begin, end in whole):
            continue
        if text[start : match.start()].strip():
            blocks.append((start, match.start()))
        start = match.end()
    return blocks


def _symbols(text: str) -> Part | None:
    piece = next(pieces(text), None)
    if (
        piece
        and piece.kind == "fence"
        and piece.info == "symbols"
        and piece.start == 0
        and piece.end == len(text.rstrip())
    ):
        return Part(piece.text, piece.text_start)
    return None


def _is_display(text: str) -> bool:
    piece = next(pieces(text), None)
    return bool(piece and piece.kind == "display" and piece.start == 0 and piece.end == len(text.rstrip()))
