"""Which parts of a Markdown text are not prose: code, equations, the targets of links and images, HTML.

Two texts say the same in two languages only if these parts are the same; and what reads prose has to look past them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from .equations import pieces

Kind = Literal["block", "code", "display", "formula", "link", "image", "address", "field", "html"]

TextKind = Literal["prose", "heading", "item"]
"""What a whole text is: running text; a title; or a phrase that is no sentence (a label, a line of a table)."""

NAMES: dict[Kind, str] = {
    "block": "code block",
    "code": "code",
    "display": "equation",
    "formula": "formula",
    "link": "link to",
    "image": "image",
    "address": "address",
    "field": "field",
}

_KINDS: dict[str, Kind] = {"code": "code", "display": "display", "inline": "formula"}
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
_LABEL = r"(?:[^\[\]\\]|\\.|\[(?:[^\[\]\\]|\\.)*\])*"
_TITLE = r"(?:\s+(?:\"[^\"]*\"|'[^']*'))?"
_LINK = re.compile(rf"(!?)\[({_LABEL})\]\(\s*(<[^>\n]*>|(?:[^\s()<]|\([^\s()]*\))*){_TITLE}\s*\)(\{{[^}}\n]*\}})?")
_REFERENCE = re.compile(rf"^[ ]{{0,3}}\[([^\]\n]+)\]:\s*(\S+){_TITLE}[ \t]*$", re.MULTILINE)
_ADDRESS = re.compile(r"<((?:https?|mailto):[^\s<>]+)>|(https?://[-\w.~:/?#@!$&'*+,;=%]*[-\w/#=&+])", re.ASCII)
_TAG = re.compile(r"</?[a-zA-Z][^<>]*>")
_ATTRIBUTES = re.compile(r"[ \t]*\{:?[ \t]*[#.][^}\n]*\}")
_FIELD = re.compile(r"\{[a-zA-Z_]\w*\}")
_HEADING = re.compile(r"(?m)^ {0,3}(#{1,6})[ \t]")
_BLANK = "\ufffc"


@dataclass(frozen=True, order=True)
class Finding:
    """Something wrong at a place of a text (a character of the text that was checked)."""

    offset: int
    message: str


@dataclass(frozen=True)
class Span:
    """A part that is not prose: where it stands, and what of it must be the same in every language."""

    kind: Kind
    start: int
    end: int
    value: str


def spans(markdown: str) -> list[Span]:
    """Find all parts of a text that are not prose, in their order; the words of a link are prose, its target is not."""
    found: list[Span] = []
    blanked = markdown

    def add(kind: Kind, start: int, end: int, value: str) -> None:
        nonlocal blanked
        found.append(Span(kind, start, end, value))
        filler = re.sub(r"[^\n]", _BLANK, blanked[start:end])
        blanked = blanked[:start] + filler + blanked[end:]

    for piece in pieces(markdown):
        if piece.kind == "fence":
            add("block", piece.start, piece.end, f"{piece.info}\n{piece.text}".strip())
        elif piece.kind != "dollar":
            add(_KINDS[piece.kind], piece.start, piece.end, " ".join(piece.text.split()))
    for match in list(_COMMENT.finditer(blanked)):
        add("html", match.start(), match.end(), match[0])
    for match in list(_REFERENCE.finditer(blanked)):
        add("link", match.start(), match.end(), match[2])
    while links := list(_LINK.finditer(blanked)):  # again, for an image may stand inside a link
        for match in links:
            add("image" if match[1] else "link", match.start(), match.start(2), match[3].strip("<>"))
            add("html", match.end(2), match.end(), "")
    for match in list(_ADDRESS.finditer(blanked)):
        add("address", match.start(), match.end(), match[1] or match[2])
    for match in list(_FIELD.finditer(blanked)):
        add("field", match.start(), match.end(), match[0])
    for pattern in (_TAG, _ATTRIBUTES):
        for match in list(pattern.finditer(blanked)):
            add("html", match.start(), match.end(), match[0])
    return sorted(found, key=lambda span: span.start)


def differences(english: str, translation: str) -> list[Finding]:
    """Find the formulas, code, links or images of a translation that differ from those of the English text.

    A sentence may name a formula or a piece of code once more or once less, so their number does not matter; equations,
    code blocks, links and images must be the same, one for one, and headings must have the same levels. Long numbers of
    the English must be there too.
    """
    found = []
    own = spans(translation)
    here, there = (Counter((span.kind, span.value) for span in part) for part in (spans(english), own))
    for kind, value in dict.fromkeys((*here, *there)):
        wanted, got = here[kind, value], there[kind, value]
        if kind == "html" or wanted == got or (kind in ("code", "formula") and wanted and got):
            continue
        name = f"the {NAMES[kind]} {value if len(value) <= 60 else value[:57] + '...'}"
        start = max((span.start for span in own if (span.kind, span.value) == (kind, value)), default=0)
        if not got:
            found.append(Finding(0, f"{name} of the English text is missing."))
        elif not wanted:
            found.append(Finding(start, f"{name} is not in the English text."))
        else:
            found.append(Finding(start, f"{name} stands {got} times, in the English text {wanted} times."))
    levels = [" ".join(_HEADING.findall(prose(text).text)) or "none" for text in (english, translation)]
    if levels[0] != levels[1]:
        found.append(Finding(0, f"the headings are {levels[1]}, in the English text {levels[0]}."))
    missing = set(_numbers(english)) - set(_numbers(translation))
    found += [Finding(0, f"the number {number} of the English text is missing.") for number in sorted(missing)]
    return found


def _numbers(markdown: str) -> Iterator[str]:
    """Go through the numbers of a text's prose that have three digits or more, without the commas between digits."""
    text = prose(markdown).text
    for match in re.finditer(r"\d[\d,]*(?:\.\d+)?", text):
        number = match[0].rstrip(",").replace(",", "")
        if len(number.replace(".", "")) >= 3:
            yield number


@dataclass(frozen=True)
class Prose:
    """The prose of a Markdown text; ``origins`` says for each of its characters where it stands in that text."""

    text: str
    origins: tuple[int, ...]

    def replace(self, pattern: re.Pattern[str], new: str | Callable[[re.Match[str]], str]) -> Prose:
        """Replace each match of a pattern."""
        edits = [(*match.span(), new if isinstance(new, str) else new(match)) for match in pattern.finditer(self.text)]
        return self._edit(edits)

    def _edit(self, edits: Sequence[tuple[int, int, str]]) -> Prose:
        text: list[str] = []
        origins: list[int] = []
        position = 0
        for start, end, new in (*edits, (len(self.text), len(self.text), "")):
            text += (self.text[position:start], new)
            origins += self.origins[position:start]
            origins += [self.origins[start]] * len(new)
            position = end
        return Prose("".join(text), (*origins, self.origins[-1]))


_ESCAPE = re.compile(r"\\(?=[!-/:-@\[-`{-~])")
_STRONG = re.compile(r"\*\*|(?<!\w)__(?=\S)|(?<=\S)__(?!\w)")
_VARIABLE = re.compile(r"(?<![*\\])\*[a-zA-Z]\*(?!\*)")
_EMPHASIS = re.compile(r"(?<![*\\\s])\*(?!\*)|(?<![*\\])\*(?![*\s])(?=[^*\n]*[^*\s]\*)")
_WIDE = "[\u2e80-\u9fff\uf900-\ufaff\uff00-\uff60]"
_NEW_BLOCK = r"(?![-*+][ \t]|\d+[.)][ \t]|\#{1,6}[ \t]|[>|]|:[ \t]|\n|\Z)"
_JOIN = re.compile(rf"(?<=\S)[ \t]*\n[ \t]*{_NEW_BLOCK}")
_DEFINITION = re.compile(r"\n(?=:[ \t])")
_ONE_LINE = re.compile(r"[ \t]*(?:\#{1,6}[ \t]|\|)")
_COMMAND = re.compile(
    r"\\(?:frac|sqrt|[hb]ar|text\w*|math\w+|operatorname|left|right|q?quad|[bB]igg?[lr]?|[,;:! ])|[{}^_\s&]"
)


def prose(markdown: str) -> Prose:
    """Reduce a Markdown text to its prose for tools that read natural language.

    Code and formulas (and a letter in italics) become as many letters X as they show characters, equations and code
    blocks the end of a paragraph; emphasis and link marks go; headings, lists and tables stay; the lines of a paragraph
    are joined as on the page.
    """
    text = Prose(markdown, tuple(range(len(markdown) + 1)))
    text = text._edit([(span.start, span.end, _stand_in(span)) for span in spans(markdown)])
    text = text.replace(_VARIABLE, "X")
    for pattern in (_STRONG, _EMPHASIS, _ESCAPE):
        text = text.replace(pattern, "")
    # A term and its definition are two paragraphs to a tool that knows no definition lists.
    return text.replace(_JOIN, _join).replace(_DEFINITION, "\n\n")


def _join(match: re.Match[str]) -> str:
    text, start, end = match.string, match.start(), match.end()
    if _ONE_LINE.match(text, text.rfind("\n", 0, start) + 1):
        return match[0]
    return "" if re.match(_WIDE, text[start - 1]) or re.match(_WIDE, text[end]) else " "


def _stand_in(span: Span) -> str:
    if span.kind in ("block", "display"):
        return "\n\n"
    if span.kind == "code":
        return "X" * len(span.value)
    if span.kind == "formula":
        return "X" * max(1, len(re.sub(r"\\[a-zA-Z]+|\\.", "x", _COMMAND.sub("", span.value))))
    return "XXX" if span.kind in ("address", "field") else ""
