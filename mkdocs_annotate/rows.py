r"""How source becomes rows: each comment or docstring beside the code it speaks of.

The rules, all of them:

* Prose is a docstring (found by `ast`) or a run of full-line comments (found by `tokenize`). It is cut from the source
  text and never evaluated, so that ``\beta`` in a docstring without ``r`` stays what the author typed.
* A docstring is prose if its lines hold nothing else; one that shares a line with code, or that is put together from
  several strings, stays in the code column. Other strings, also those below an attribute, are code.
* A comment stays in the code column if it stands inside a logical line, after code, or is a directive to a tool
  (`DIRECTIVES`). A directive at the end of a comment that is prose is left out of the prose.
* A row begins with prose, with a decorator, ``class`` or ``def``, and where code of another function or class begins;
  never inside a logical line. Blank lines at the start of a row's code belong to the end of the row before.
* The docstring of a function or class stands in the row of its ``class`` or ``def`` line, unless a comment comes first.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import textwrap
import tokenize
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

# What speaks to a tool and not to a reader. Matched at the "#" of a comment.
DIRECTIVES = re.compile(
    r"""\#+\s*(?:
        noqa\s*(?::|$) | type:\s*(?:ignore\b | \(.*\)\s*-> | [\w.]+(?:\[.*\])?\s*$) | fmt:\s*(?:on|off|skip)\b
      | yapf:\s*(?:en|dis)able | isort:\s*\w+\s*$ | pragma:\s*no\s | nosec\s*(?:B\d|$) | SPDX- | %%
      | (?:pylint|mypy|pyright):\s*[\w-]+\s*(?:=|,|\[|$) | (?:ruff|flake8)[:-]\s*(?:noqa|isort)\b
      | pyre-(?:ignore|fixme|strict) | -\*-.*-\*-\s*$ | vim?:\s*\S
    )""",
    re.VERBOSE,
)
# ... and at the end of a comment that is prose.
_TRAILING_DIRECTIVE = re.compile(
    r"""\s+\#\s*(?:
        noqa(?::\s*[A-Z]+\d+(?:[,\s]+[A-Z]+\d+)*)? | type:\s*ignore(?:\[[^]]*\])? | fmt:\s*skip | pragma:\s*no\s\w+
      | (?:pylint|mypy|pyright|ruff):\s*[\w-]+(?:[=\[][\w,\s\]-]+)? | nosec(?:\s+B\d+)*
    )\s*$""",
    re.VERBOSE,
)
_CODING = re.compile(r"#.*?coding[:=][ \t]*[-\w.]+")
_FIXED_ANCHOR = re.compile(r"\s*\{#([A-Za-z][\w.:-]*)\}\s*\Z")
_QUOTES = re.compile(r"([A-Za-z]*)(\"\"\"|\'\'\'|\"|\')")
_MARK = re.compile(r"#+(?::(?=\s|$))?")
LINE_ID = re.compile(r"L\d+")
"""Ids that the lines of the code column have."""
_HINTS = (
    # What later versions brought, to be seen in the line that an older one rejects.
    ((3, 12), re.compile(r"^\s*type\s+\w|^\s*(?:async\s+def|def|class)\s+\w+\s*\[|f['\"]")),
    ((3, 14), re.compile(r"\bt[rR]?['\"]|\b[rR]t['\"]|^\s*except\s+\w+\s*,")),
)


class SourceError(Exception):
    """A source that can't become a page; its text is one sentence that begins with ``path:line:column``."""

    def __init__(self, path: str, line: int, column: int, message: str) -> None:
        super().__init__(f"{path}:{line}:{column}: {message}")
        self.path = path
        self.line = line
        self.column = column
        self.message = message


@dataclass(frozen=True)
class Row:
    """Some prose and the lines of code beside it; either may be missing."""

    anchor: str
    """Unique on its page and the same in every language: ``Adam.get_mv``, then ``Adam.get_mv-2``."""
    kind: str
    """``class`` or ``def`` if the row holds such a line, ``module`` for the module's docstring, else empty."""
    name: str
    """The plain name of a class or function row."""
    qualname: str
    """The innermost function or class around the row, empty at module level."""
    prose: str
    """Markdown as it stands in the source."""
    prose_line: int
    """Source line of the first line of `prose`, 0 without prose; the others follow, one for one."""
    numbers: tuple[int, ...]
    """Source line of each line of `code`; a docstring leaves a gap."""
    code: tuple[str, ...]
    """Lines of the source, byte for byte."""

    @property
    def first_line(self) -> int:
        """Source line of the first line of code, 0 without code."""
        return self.numbers[0] if self.numbers else 0


def read_source(path: Path) -> str:
    """Read a Python file as Python does: its declared encoding, line ends as newlines."""
    data = path.read_bytes()
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
        text = data.decode(encoding)
    except (SyntaxError, UnicodeDecodeError) as error:
        line = data.count(b"\n", 0, error.start) + 1 if isinstance(error, UnicodeDecodeError) else 1
        raise SourceError(path.as_posix(), line, 1, f"the file can't be decoded ({error}); save it as UTF-8.") from None
    return text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")


def read_rows(source: str, path: str, directives: re.Pattern[str] = DIRECTIVES) -> list[Row]:
    """Cut a source into rows; raises `SourceError` if Python can't parse it."""
    source = source.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    lines = source.split("\n")
    if lines and not lines[-1]:
        lines.pop()
    tree = _parse(source, path, lines)
    return _finish(_cut(lines, _units(source, path, lines, directives), tree), lines, path)


def _parse(source: str, path: str, lines: list[str]) -> ast.Module:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # "\d" in a string is the author's business
            return ast.parse(source)
    except SyntaxError as error:
        line, column = error.lineno or 1, error.offset or 1
        message = f"Python can't parse this line ({error.msg})."
        text = lines[line - 1] if line <= len(lines) else ""
        newer = [version for version, sign in _HINTS if version > sys.version_info[:2] and sign.search(text)]
        if newer:
            running, needed = ".".join(map(str, sys.version_info[:2])), ".".join(map(str, newer[0]))
            message += (
                f" The syntax may be newer than this Python {running}; build the site with Python {needed} or later."
            )
        raise SourceError(path, line, column, message) from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise SourceError(path, 1, 1, f"Python can't parse this file ({error or type(error).__name__}).") from None


# A source is a sequence of units: logical lines, runs of comment lines, blank lines.


@dataclass
class _Unit:
    kind: str  # "code", "string" (a logical line that is one string and nothing else), "comment" or "blank"
    first: int
    last: int
    column: int = 0
    texts: list[str] = field(default_factory=list)  # the string, or the comments, as they stand in the source


def _tokenized(source: str, path: str, lines: list[str]) -> Iterator[_Unit]:
    """Cut a source into units that follow each other without a gap, each comment line a unit of its own."""
    done = 0  # lines that are in a unit
    tokens = 0  # in the logical line so far
    string: tokenize.TokenInfo | None = None
    aside = (tokenize.INDENT, tokenize.DEDENT, tokenize.ENCODING, tokenize.ENDMARKER)
    try:
        for token in tokenize.generate_tokens(io.StringIO(source).readline):
            kind, text, (row, column), _, _ = token
            if kind in (tokenize.OP, tokenize.NAME, tokenize.NUMBER):
                tokens += 1
            elif kind == tokenize.NEWLINE:
                if row > done and tokens:
                    alone = string and tokens == 1 and (string.start[0], string.end[0]) == (done + 1, row)
                    if string and alone and not lines[row - 1][string.end[1] :].strip():
                        yield _Unit("string", done + 1, row, string.start[1], [string.string])
                    else:
                        yield _Unit("code", done + 1, row)
                    done = row
                tokens, string = 0, None
            elif kind == tokenize.COMMENT and not tokens:
                if row == done + 1:
                    yield _Unit("comment", row, row, column, [text])
                    done = row
            elif kind == tokenize.NL:
                if row == done + 1 and not tokens:
                    yield _Unit("blank", row, row)
                    done = row
            elif kind not in aside:
                tokens += 1
                string = token if kind == tokenize.STRING else string
    except (tokenize.TokenError, IndentationError) as error:
        row = (error.lineno or 1) if isinstance(error, IndentationError) else error.args[1][0]
        raise SourceError(path, row, 1, f"Python can't read this line ({error.args[0]}).") from None
    if done < len(lines):
        yield _Unit("code", done + 1, len(lines))


def _units(source: str, path: str, lines: list[str], directives: re.Pattern[str]) -> list[_Unit]:
    """Cut a source into units; comments that speak to a tool, or say nothing, are code."""
    units: list[_Unit] = []
    for unit in _tokenized(source, path, lines):
        if unit.kind == "comment":
            text = unit.texts[0]
            special = (unit.first == 1 and text.startswith("#!")) or (unit.first <= 2 and _CODING.match(text))
            if special or directives.match(text):
                unit.kind = "code"
            elif units and units[-1].kind == "comment" and units[-1].column == unit.column:
                units[-1].last = unit.last
                units[-1].texts.append(text)
                continue
        units.append(unit)
    for unit in units:
        if unit.kind == "comment" and not any(text.strip("#: \t\f") for text in unit.texts):
            unit.kind = "code"
    return units


# Functions and classes, and which of them a line stands in.


@dataclass
class _Scope:
    name: str
    qualname: str
    anchor: str
    is_class: bool
    outer: _Scope | None
    first: int  # line of the first decorator, or of the `def`
    line: int  # line of the `def` or `class`
    last: int
    body_column: int
    docstring: int  # its line, or 0


def _scopes(tree: ast.Module) -> list[_Scope]:
    """List the functions and classes of a module in the order of their lines."""
    scopes: list[_Scope] = []
    seen = {"module": 1, "top": 1}  # anchors that the page uses itself

    def visit(statements: list[ast.stmt], outer: _Scope | None) -> None:
        for node in statements:
            inner = outer
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                inner = add(node, outer)
            for name in ("body", "orelse", "handlers", "cases", "finalbody"):
                below = getattr(node, name, None)
                if isinstance(below, list):
                    visit(below, inner)

    def add(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef, outer: _Scope | None) -> _Scope:
        prefix, base = (f"{outer.qualname}.", f"{outer.anchor}.") if outer else ("", "")
        anchor = base + node.name
        for decorator in node.decorator_list:
            if isinstance(decorator, ast.Attribute) and decorator.attr in ("setter", "deleter"):
                anchor += f".{decorator.attr}"
        seen[anchor] = number = seen.get(anchor, 1 if LINE_ID.fullmatch(anchor) else 0) + 1
        first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
        docstring = node.body[0].lineno if _is_docstring(node.body) else 0
        scope = _Scope(
            name=node.name,
            qualname=prefix + node.name,
            anchor=anchor if number == 1 else f"{anchor}.{number}",
            is_class=isinstance(node, ast.ClassDef),
            outer=outer,
            first=first,
            line=node.lineno,
            last=node.end_lineno or node.lineno,
            body_column=node.body[0].col_offset,
            docstring=docstring,
        )
        scopes.append(scope)
        return scope

    visit(tree.body, None)
    return scopes


def _is_docstring(body: list[ast.stmt]) -> bool:
    first = body[0] if body else None
    return isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str)


# Rows in the making.


@dataclass
class _Draft:
    scope: _Scope | None
    kind: str = ""
    prose: str = ""
    prose_line: int = 0
    column: int = -1  # of a comment
    numbers: list[int] = field(default_factory=list)


def _cut(lines: list[str], units: list[_Unit], tree: ast.Module) -> list[_Draft]:
    """Give each unit to a row."""
    scopes = _scopes(tree)
    strings = {unit.first for unit in units if unit.kind == "string" and _docstring(unit)[0]}
    docstrings = {scope.docstring: scope for scope in scopes if scope.docstring in strings}
    module = tree.body[0].lineno if _is_docstring(tree.body) and tree.body[0].lineno in strings else 0

    drafts: list[_Draft] = []
    inside: list[_Scope] = []  # the functions and classes around the line
    header: _Scope | None = None  # the one whose decorators are being read
    upcoming = 0
    before: _Scope | None = None  # the scope of the code before
    touching = False  # whether the last row is a comment that ends on the line before
    for unit in units:
        while inside and unit.first > inside[-1].last:
            inside.pop()
        starting = upcoming < len(scopes) and scopes[upcoming].first <= unit.last
        if starting:
            inside.append(scopes[upcoming])
            header = scopes[upcoming]
            upcoming += 1
        scope = inside[-1] if inside else None
        draft = drafts[-1] if drafts else None

        if unit.kind == "blank":
            if (draft and draft.numbers) or len(drafts) < 2:
                if draft is None:
                    drafts.append(draft := _Draft(None))
                draft.numbers.append(unit.first)
            else:
                drafts[-2].numbers.append(unit.first)
            touching = False
            continue
        if unit.kind == "comment":
            prose, line = _comments(unit)
            around = before  # a comment may stand in the body of a function after its last statement
            while around and unit.first > around.last and unit.column < around.body_column:
                around = around.outer
            around = around if around and (scope is None or around.first > scope.first) else scope
            drafts.append(_Draft(around, "", prose, line, unit.column))
            touching = True
            continue
        if unit.first == module or unit.first in docstrings:
            prose, line = _docstring(unit)
            owner = docstrings.get(unit.first)
            if draft and owner and draft.scope is owner and draft.kind and not draft.prose:
                draft.prose, draft.prose_line = prose, line
            else:
                drafts.append(_Draft(owner, "" if owner else "module", prose, line))
            touching, before = False, owner
            continue

        waiting = draft is not None and draft.prose != "" and not draft.numbers and draft.kind == ""
        if starting and header:
            column = len(lines[unit.first - 1]) - len(lines[unit.first - 1].lstrip())
            joins = waiting and touching and draft is not None and draft.column == column
            joins = joins and header.docstring not in docstrings
        elif header:
            joins = True
        else:
            joins = draft is not None and draft.kind != "module" and draft.scope is scope
        if draft is None or not joins:
            drafts.append(draft := _Draft(scope))
        draft.scope = scope
        draft.numbers.extend(range(unit.first, unit.last + 1))
        if header and header.line <= unit.last:
            draft.kind = "class" if header.is_class else "def"
            header = None
        touching, before = False, scope
    return drafts


def _docstring(unit: _Unit) -> tuple[str, int]:
    """Cut the prose out of a docstring's source; return it with the line that it begins in."""
    match = _QUOTES.match(unit.texts[0])
    if match is None:
        return "", 0
    inner = unit.texts[0][match.end() : -len(match[2])].split("\n")
    if "r" not in match[1].lower():
        # A backslash at the end of a line joins two lines of the source; two of them are TeX.
        inner = [re.sub(r"(?<!\\)((?:\\\\)*)\\$", r"\1", line) for line in inner]
    inner[0] = inner[0].lstrip()
    rest = textwrap.dedent("\n".join(inner[1:])).split("\n") if len(inner) > 1 else []
    return _trimmed([inner[0], *rest], unit.first)


def _comments(unit: _Unit) -> tuple[str, int]:
    """Cut the prose out of a run of comments; return it with the line that it begins in."""
    texts = [_MARK.sub("", text, count=1) for text in unit.texts]
    texts = [_TRAILING_DIRECTIVE.sub("", text) for text in texts]
    return _trimmed(textwrap.dedent("\n".join(texts)).split("\n"), unit.first)


def _trimmed(lines: list[str], first: int) -> tuple[str, int]:
    lines = [line.rstrip() for line in lines]
    while lines and not lines[-1]:
        lines.pop()
    blank = next((number for number, line in enumerate(lines) if line), len(lines))
    return "\n".join(lines[blank:]), first + blank


def _finish(drafts: list[_Draft], lines: list[str], path: str) -> list[Row]:
    """Give each row its anchor and its lines."""
    rows: list[Row] = []
    counts = {"module": 1} if any(draft.kind == "module" for draft in drafts) else {}
    taken: dict[str, int] = {}
    for draft in drafts:
        anchor = base = draft.scope.anchor if draft.scope else "module"
        if draft.kind != "module":
            counts[base] = number = counts.get(base, 0) + 1
            anchor = base if number == 1 else f"{base}-{number}"
        match = _FIXED_ANCHOR.search(draft.prose)
        prose = draft.prose[: match.start()] if match else draft.prose
        if match:
            anchor = match[1]
        line = draft.prose_line or (draft.numbers[0] if draft.numbers else 1)
        clash = anchor in taken or anchor == "top" or LINE_ID.fullmatch(anchor)
        if clash:
            earlier = f" (line {taken[anchor]})" if anchor in taken else ""
            message = f"the anchor {{#{anchor}}} is already in use on this page{earlier}; choose another name."
            raise SourceError(path, line, 1, message)
        taken[anchor] = line
        rows.append(
            Row(
                anchor=anchor,
                kind=draft.kind,
                name=draft.scope.name if draft.scope and draft.kind in ("class", "def") else "",
                qualname=draft.scope.qualname if draft.scope else "",
                prose=prose,
                prose_line=draft.prose_line if prose else 0,
                numbers=tuple(draft.numbers),
                code=tuple(lines[number - 1] for number in draft.numbers),
            )
        )
    return rows
