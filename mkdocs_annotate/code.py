"""How lines of code become HTML: Pygments' classes, a link for each line number, the symbols of the page marked.

The text of the lines is the source, byte for byte. Classes that a page leaves in the colour of its text are not
written, which halves the HTML.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache

from pygments.lexer import Lexer
from pygments.lexers import get_lexer_by_name
from pygments.lexers.python import PythonLexer
from pygments.token import STANDARD_TYPES, Comment, Keyword, Name, Number, Operator, String, Token, _TokenType
from pygments.util import ClassNotFound

_PYTHON = PythonLexer(stripnl=False, ensurenl=False)
# The tokens that have a colour or weight of their own; others are plain text.
_SHOWN = (
    *(Keyword, Name.Builtin, Name.Class, Name.Function, Name.Decorator, Name.Exception, Number, Operator.Word),
    *(String, Comment, Token.Generic, Token.Error),
)
_PLAIN = (Name.Builtin.Pseudo, String.Interpol, Name.Function.Magic)
_NAME = re.compile(r"\w+")


def highlight(
    code: Sequence[str],
    numbers: Sequence[int],
    slots: Mapping[str, int] | None = None,
    links: Mapping[str, str] | None = None,
) -> str:
    """Make the lines of a row; ``slots`` says which names are symbols, ``links`` where names lead to."""
    return _lines(tuple(code), tuple(numbers), _frozen(slots), _frozen(links)) if code else ""


def _frozen(mapping: Mapping[str, int] | Mapping[str, str] | None) -> tuple[tuple[str, int | str], ...]:
    return tuple((mapping or {}).items())


@lru_cache(maxsize=8192)  # the code column is the same in every language
def _lines(
    code: tuple[str, ...],
    numbers: tuple[int, ...],
    slots: tuple[tuple[str, int], ...],
    links: tuple[tuple[str, str], ...],
) -> str:
    made = _html("\n".join(code), _PYTHON, dict(slots), dict(links)).split("\n")
    return "".join(
        f'<span class="line" id="L{number}"><a class="ln" href="#L{number}" tabindex="-1">{number}</a>{line}\n</span>'
        for number, line in zip(numbers, made, strict=True)
    )


def fence(
    text: str,
    language: str,
    slots: Mapping[str, int] | None = None,
    links: Mapping[str, str] | None = None,
    *,
    focusable: bool = False,
) -> str:
    """Make a block of code that stands inside prose; one that may scroll has to be `focusable`."""
    text = text.rstrip("\n") + "\n"
    made = _html(text, _lexer(language), slots or {}, links or {})
    focus = ' tabindex="0"' if focusable else ""
    return f'<pre class="highlight"{focus}><code>{made}</code></pre>'


def _lexer(language: str) -> Lexer | None:
    if language in ("", "text", "txt", "plain"):
        return None
    try:
        return get_lexer_by_name(language, stripnl=False, ensurenl=False)
    except ClassNotFound:
        return None


def _html(text: str, lexer: Lexer | None, slots: Mapping[str, int], links: Mapping[str, str]) -> str:
    """Mark up a text; tags never reach over the end of a line."""
    parts: list[str] = []
    for kind, piece in _tokens(text, lexer):
        for number, line in enumerate(piece.split("\n")):
            if number:
                parts.append("\n")
            if line:
                parts.append(_token(kind, line, slots, links))
    return "".join(parts)


def _tokens(text: str, lexer: Lexer | None) -> Iterator[tuple[str, str]]:
    """Cut a text into pieces of one class; neighbours of the same class are one piece."""
    if lexer is None:
        yield "", text
        return
    made = list(lexer.get_tokens_unprocessed(text))
    if "".join(piece for _, _, piece in made) != text:  # a lexer that doesn't keep the text
        yield "", text
        return
    kind, pieces = "", ""
    for _, token, piece in made:
        this = _class(token)
        if this != kind and pieces:
            yield kind, pieces
            pieces = ""
        kind = this
        pieces += piece
    if pieces:
        yield kind, pieces


@lru_cache(maxsize=256)
def _class(token: _TokenType) -> str:
    if any(_is(token, plain) for plain in _PLAIN) or not any(_is(token, shown) for shown in _SHOWN):
        return ""
    if _is(token, String):
        return "s"
    if _is(token, Comment):
        return "c"
    while token not in STANDARD_TYPES and token.parent is not None:
        token = token.parent
    return "k" if _is(token, Keyword) and not _is(token, Keyword.Constant) else STANDARD_TYPES[token]


def _is(token: _TokenType, kind: _TokenType) -> bool:
    return token[: len(kind)] == kind


def _token(kind: str, text: str, slots: Mapping[str, int], links: Mapping[str, str]) -> str:
    made = html.escape(text, quote=False)
    if kind != "c" and (slots or links):
        made = _marked(text, kind, slots, links)
    return f'<span class="{kind}">{made}</span>' if kind else made


def _marked(text: str, kind: str, slots: Mapping[str, int], links: Mapping[str, str]) -> str:
    """Mark the names in a piece that are symbols, and link those that lead somewhere."""
    parts: list[str] = []
    done = 0
    for match in _NAME.finditer(text):
        name = match[0]
        slot, link = slots.get(name), links.get(name)
        in_string = kind == "s"
        if slot and in_string and not _is_whole_string(text, match.start(), match.end()):
            slot = None
        if not slot and (not link or in_string):
            continue
        made = name
        if slot:
            made = f'<span class="sym y{slot}">{made}</span>'
        elif link:
            made = f'<a class="ref" href="{html.escape(link)}">{made}</a>'
        parts += [html.escape(text[done : match.start()], quote=False), made]
        done = match.end()
    parts.append(html.escape(text[done:], quote=False))
    return "".join(parts)


def _is_whole_string(text: str, start: int, end: int) -> bool:
    """Whether the name is all that a string holds, as in ``state["exp_avg"]``."""
    return text[start - 1 : start] in ("'", '"') and text[end : end + 1] == text[start - 1 : start]


def inline(text: str, slots: Mapping[str, int] | None = None) -> str:
    """Make the inside of a code span of prose."""
    return _marked(text, "", slots or {}, {})
