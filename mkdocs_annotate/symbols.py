r"""What belongs together: a symbol in the equations of a page, and the names that it has in the code.

A block fenced as ``symbols`` in the module's docstring lists them, a line each::

    m_t | m, state['exp_avg'] | first moment | FP32 | y2

The TeX, the names, the meaning and (if you like) what it is kept as and a slot, in Markdown. A slot is a colour and
line style, ``y1`` to ``y8``; symbols that ask for the same one light up together, and those that ask for none get what
is left.

In an equation the symbol is also found with another running index (``m_t`` in ``m_{t-1}``, ``m_0`` and ``m``), but not
with another number (``\beta_1`` is not in ``\beta_2``), and not below an accent (``\hat m_t`` is its own symbol). A
symbol that is listed with a superscript (``\theta^{16}``) is found only with this one; another lights up together with
its power.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

SLOTS = 8


@dataclass(frozen=True)
class Symbol:
    """One symbol of a page."""

    tex: str
    names: tuple[str, ...]
    """What it is called in the code: identifiers, or the text of strings."""
    meaning: str
    """Markdown."""
    kept: str
    """Markdown, what it is kept as; may be empty."""
    slot: int
    """1 to 8, or 0 without a slot."""
    code: str = ""
    """The names as the author wrote them."""
    line: int = 0
    """Line inside the block, counted from 0."""


class SymbolsError(Exception):
    """A line of a block of symbols that can't be read; `line` counts from 0."""

    def __init__(self, line: int, message: str) -> None:
        super().__init__(message)
        self.line = line
        self.message = message


_SLOT = re.compile(r"y([1-8])")


def read_symbols(block: str) -> list[Symbol]:
    """Read a block of symbols."""
    found: list[tuple[int, list[str], int]] = []
    for number, line in enumerate(block.split("\n")):
        if not line.strip():
            continue
        cells = [cell.strip() for cell in re.split(r"(?<=\s)\|(?=\s|$)", line.strip())]
        asked = _SLOT.fullmatch(cells[4]) if len(cells) == 5 else None
        if len(cells) not in (3, 4, 5) or not cells[0] or not cells[2] or (len(cells) == 5 and not asked):
            raise SymbolsError(
                number, f"a symbol is `TeX | names in the code | meaning | kept as | y1`, not `{line.strip()}`."
            )
        found.append((number, [*cells[:4], ""][:4], int(asked[1]) if asked else 0))
    asked_for = {slot for _, _, slot in found}
    free = iter([slot for slot in range(1, SLOTS + 1) if slot not in asked_for])
    symbols: list[Symbol] = []
    for number, (tex, names, meaning, kept), slot in found:
        code = names.replace("`", "").strip()
        listed = tuple(dict.fromkeys(match for name in code.split(",") if (match := _name(name.strip()))))
        tex = tex.strip("$ ")
        if any(symbol.tex == tex for symbol in symbols):
            raise SymbolsError(number, f"the symbol `{tex}` is listed twice.")
        symbols.append(Symbol(tex, listed, meaning, kept, slot or next(free, 0), code, number))
    return symbols


def _name(text: str) -> str:
    """Find what a token of the code looks like: ``state['exp_avg']`` and ``self.exp_avg`` are ``exp_avg``."""
    match = re.search(r"(\w+)['\"\])]*$", text)
    return match[1] if match else ""


def slots_of(symbols: Sequence[Symbol]) -> dict[str, int]:
    """Say which name in the code has which slot."""
    slots: dict[str, int] = {}
    for symbol in symbols:
        for name in symbol.names:
            if symbol.slot:
                slots.setdefault(name, symbol.slot)
    return slots


# TeX. An atom is a nucleus (a letter or a Greek one, with its accents) and its scripts.

_SPACE = re.compile(r"\s*")
_COMMAND = re.compile(r"\\(?:[A-Za-z]+|.)", re.DOTALL)
_ACCENT = re.compile(
    "hat|bar|tilde|vec|d?dot|check|breve|acute|grave|mathring|widehat|widetilde"
    "|mathbf|boldsymbol|bm|bold|mathcal|mathbb|mathfrak|mathscr|mathsf"
)
_VARIABLE = re.compile(
    "[aA]lpha|[bB]eta|[gG]amma|[dD]elta|(?:var)?epsilon|zeta|eta|(?:var)?[tT]heta|iota|kappa|[lL]ambda|mu|nu|[xX]i"
    "|(?:var)?[pP]i|(?:var)?rho|(?:var)?[sS]igma|tau|[uU]psilon|(?:var)?[pP]hi|chi|[pP]si|[oO]mega"
    "|ell|hbar|nabla|partial|imath|jmath"
)
# Commands whose first arguments are not mathematics to look into.
_OPAQUE = re.compile(
    "text|text(?:rm|bf|it|tt|sf|normal)|mbox|operatorname|math(?:rm|it|tt)|begin|end|tag|label|(?:text)?color|[hv]space|url"
    "|html(?:Class|Data|Id|Style)|(?P<two>rule|href|colorbox|newcommand)"
)
_DIMENSION = re.compile(r"\s*(?:\[[^]]*\]|-?[\d.]+\s*(?:em|ex|mu|pt|mm|cm|in|px|sp|bp))")
_WORD = re.compile(r"[A-Za-z]{3,}")
_ALONE = re.compile(r"(?:^|[-=+({\[,;&|<>*/]|\\[,;:! \\])\s*\Z")
_SECOND = re.compile(r"\\(?:[dtc]?frac|[dt]?binom|(?:over|under)set|stackrel)\s*(?:\\[^A-Za-z]|[^\s{\\])\s*\Z")
_INDEX = re.compile(r"(?:[A-Za-z0-9]|[-+,\s]|\\tau(?![a-z]))*")
_RUNNING = re.compile(r"(?=.*[A-Za-z])" + _INDEX.pattern)


@dataclass(frozen=True)
class _Atom:
    nucleus: str
    below: str | None
    above: str | None
    nucleus_end: int
    end: int


def tag_tex(tex: str, symbols: Sequence[Symbol]) -> str:
    r"""Mark the symbols of a page in an equation: ``m_{t-1}`` becomes ``\htmlClass{sym y2}{m_{t-1}}``."""
    listed: list[tuple[_Atom, int]] = []
    for symbol in symbols:
        atom = _atom(symbol.tex, 0)
        if atom and symbol.slot and atom.end == len(symbol.tex):
            listed.append((atom, symbol.slot))
    listed.sort(key=lambda item: _exactness(item[0]), reverse=True)
    result: list[str] = []
    position = 0
    while position < len(tex):
        word = _WORD.match(tex, position)
        atom = None if word else _atom(tex, position)
        if atom is None:
            end = word.end() if word else _opaque(tex, position)
            result.append(tex[position:end])
        elif slot := next((slot for wanted, slot in listed if _matches(wanted, atom)), 0):
            end = atom.end
            marked = f"\\htmlClass{{sym y{slot}}}{{{tex[position:end]}}}"
            # As an argument without braces of its own (`x^S`, `\frac1S`, `\frac+S`) it needs some.
            alone = _ALONE.search(tex, 0, position) and not _SECOND.search(tex, 0, position)
            result.append(marked if alone else f"{{{marked}}}")
        else:
            end = atom.nucleus_end
            result.append(tex[position:end])
        position = end
    return "".join(result)


def _exactness(wanted: _Atom) -> int:
    exact_index = wanted.below is not None and not _RUNNING.fullmatch(wanted.below)
    return 4 * (wanted.above is not None) + 2 * exact_index + (wanted.below is not None)


def _matches(wanted: _Atom, atom: _Atom) -> bool:
    if atom.nucleus != wanted.nucleus or (wanted.above is not None and atom.above != wanted.above):
        return False
    if wanted.below is None or atom.below is None:
        return wanted.below is None or bool(_RUNNING.fullmatch(wanted.below))
    if not _RUNNING.fullmatch(wanted.below):
        return atom.below == wanted.below
    return bool(_INDEX.fullmatch(atom.below)) and not re.search(r"[A-Za-z]{3}", atom.below)


def _atom(tex: str, position: int) -> _Atom | None:
    """Read the atom that begins at a position, if one does."""
    nucleus, end = _nucleus(tex, position)
    if not nucleus:
        return None
    nucleus_end = end
    below = above = None
    while True:
        mark = _skip(tex, end)
        sign = tex[mark : mark + 1]
        if sign == "'" and above is None:
            above, end = "'", mark + 1
        elif sign == "_" and below is None:
            below, end = _argument(tex, mark + 1)
        elif sign == "^" and above is None:
            above, end = _argument(tex, mark + 1)
        else:
            return _Atom(nucleus, below, above, nucleus_end, end)


def _nucleus(tex: str, position: int) -> tuple[str, int]:
    """Read a letter or a Greek one, with its accents, in one spelling; an empty one if something else stands there."""
    if tex[position : position + 1].isalpha() and tex[position].isascii():
        return tex[position], position + 1
    command = _COMMAND.match(tex, position)
    if command is None:
        return "", position
    name = command[0][1:]
    if _VARIABLE.fullmatch(name):
        return command[0], command.end()
    if _ACCENT.fullmatch(name):
        inner, end = _argument(tex, command.end())
        return f"{command[0]}{{{inner}}}", end
    return "", position


def _argument(tex: str, position: int) -> tuple[str, int]:
    """Read the argument of a command or script; return it without braces and spaces, and where it ends."""
    start = _skip(tex, position)
    if tex[start : start + 1] == "{":
        end = _group_end(tex, start)
        inner = tex[start + 1 : end - 1].strip()
        return re.sub(r"(?<![A-Za-z])\s+|\s+(?![A-Za-z])", "", inner), end
    command = _COMMAND.match(tex, start)
    if command is None:
        return tex[start : start + 1], min(start + 1, len(tex))
    if _ACCENT.fullmatch(command[0][1:]) or _OPAQUE.fullmatch(command[0][1:]):
        inner, end = _argument(tex, command.end())
        return f"{command[0]}{{{inner}}}", end
    return command[0], command.end()


def _skip(tex: str, position: int) -> int:
    match = _SPACE.match(tex, position)
    return match.end() if match else position


def _group_end(tex: str, position: int) -> int:
    """Find the end of the group that begins at a position."""
    depth = 0
    for match in re.compile(r"\\.|[{}]", re.DOTALL).finditer(tex, position):
        depth += {"{": 1, "}": -1}.get(match[0], 0)
        if not depth and match[0] == "}":
            return match.end()
    return len(tex)


def _opaque(tex: str, position: int) -> int:
    """Step over what is no atom: a character, or a command with those of its arguments that hold no symbols."""
    if tex[position] == "%":
        return (tex.find("\n", position) + 1) or len(tex)
    command = _COMMAND.match(tex, position)
    if command is None:
        return position + 1
    end = command.end()
    name = command[0][1:]
    if name in ("\\", "kern", "mkern", "hskip", "mskip") and (dimension := _DIMENSION.match(tex, end)):
        return dimension.end()
    opaque = _OPAQUE.fullmatch(name)
    if opaque and tex[end : end + 1] == "*":
        end += 1
    for _ in range((2 if opaque["two"] else 1) if opaque else 0):
        start = _skip(tex, end)
        if tex[start : start + 1] != "{":
            break
        end = _group_end(tex, start)
    if name == "begin" and (spec := re.compile(r"\{array\}\s*").match(tex, command.end())):
        end = _group_end(tex, spec.end())
    return end
