"""What is checked in Japanese prose: the glossary, the style, bold text, and what textlint finds.

Each check is a plain function that takes a text and returns what it found, with the place in that text. Words are those
of SudachiPy, in its longest reading: 削減量 is 削減 and 量, so that a forbidden 減量 is not found in it.
"""

from __future__ import annotations

import functools
import hashlib
import json
import re
import subprocess
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from html import unescape
from pathlib import Path
from typing import Any

import markdown as python_markdown
from markdown_it import MarkdownIt
from sudachipy import Dictionary, Morpheme, SplitMode, Tokenizer  # type: ignore[import-untyped]

from .equations import Katex, find_node
from .errors import FileError
from .prose import Context, Where, render
from .spans import Finding, TextKind, spans

_JAPANESE = r"\u3005-\u3007\u3041-\u30ff\u3400-\u4dbf\u4e00-\u9fff"
_MARKS = r"\u3001-\u3003\u3008-\u3011\u301c・（）：；！？"
_WORDS_OR_MARKS = f"[{_JAPANESE}{_MARKS}]"
_KATAKANA = re.compile(r"[\u30a1-\u30ff]+")


class GlossaryError(FileError):
    """A glossary that can't be read."""


@dataclass(frozen=True)
class Term:
    """A word of the glossary that must not be written, and what to write."""

    form: str
    english: str
    japanese: str


@dataclass(frozen=True)
class Glossary:
    """Forbidden forms, and the phrases in which one is allowed."""

    terms: tuple[Term, ...]
    allowed: tuple[tuple[str, str], ...] = ()

    @classmethod
    def load(cls, path: Path, exceptions: Path | None = None) -> Glossary:
        """Read a table of terms (en, ja, forbidden, ...) and one of exceptions (form, within, reason)."""
        terms = []
        for number, (english, japanese, forbidden, *_) in _table(path, 3):
            for form in forbidden.split("|"):
                if not form.strip():
                    raise GlossaryError(path, number, "an empty form is forbidden; write - if none is.")
                if form != "-":
                    terms.append(Term(form, english, japanese))
        allowed = []
        if exceptions is not None and exceptions.exists():
            for number, (form, within, reason, *_) in _table(exceptions, 3):
                if not reason.strip():
                    raise GlossaryError(exceptions, number, "an exception needs its reason in the third column.")
                if form not in within:
                    raise GlossaryError(exceptions, number, f'"{within}" does not contain "{form}".')
                allowed.append((form, within))
        return cls(tuple(terms), tuple(allowed))


def _table(path: Path, columns: int) -> Iterator[tuple[int, list[str]]]:
    """Go through the lines of a table with tabs between its columns, the first line (their names) apart."""
    width = columns
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        cells = line.split("\t")
        width = max(columns, len(cells)) if number == 1 else width
        if len(cells) != width:
            raise GlossaryError(path, number, f"{len(cells)} columns (between tabs) where {width} are needed.")
        if number > 1:
            yield number, cells


@functools.cache
def _tokenizer() -> Tokenizer:
    return Dictionary(dict="core").tokenizer(mode=SplitMode.C)


def words(text: str) -> list[Morpheme]:
    """Cut a text into words."""
    # Sudachi takes 49,149 bytes at most.
    found: list[Morpheme] = []
    for start in range(0, len(text), 12000):
        found += _tokenizer().tokenize(text[start : start + 12000])
    return found


def forbidden_words(text: str, glossary: Glossary) -> list[Finding]:
    """Find the forbidden forms of the glossary where they are words, not where they are hidden inside others."""
    found = []
    for line in re.finditer(r"[^\n]+", text):
        present = [term for term in glossary.terms if _stem(term.form) in line[0]]
        if not present:
            continue
        tokens = words(line[0])
        for term in present:
            for start, end in _occurrences(term.form, line[0], tokens):
                if not _is_allowed(term.form, start, end, line[0], glossary.allowed):
                    message = f'"{term.form}" is not the word for "{term.english}" here; write {term.japanese}.'
                    found.append(Finding(line.start() + start, message))
    return sorted(set(found))


@functools.cache
def _form_words(form: str) -> tuple[tuple[str, str, str], ...]:
    return tuple((word.surface(), word.dictionary_form(), word.part_of_speech()[0]) for word in words(form))


def _stem(form: str) -> str:
    """Return what of a form stays the same when its last word, a verb, is inflected."""
    last = _form_words(form)[-1]
    return form[: len(form) - 1] if last[2] == "動詞" else form


def _occurrences(form: str, text: str, tokens: Sequence[Morpheme]) -> Iterator[tuple[int, int]]:
    begins = {token.begin() for token in tokens}
    ends = {token.end() for token in tokens}
    # A compound of unknown katakana words is one token; a long form at its edge is a word of it.
    loose = [
        (token.begin(), token.end()) for token in tokens if token.is_oov() and _KATAKANA.fullmatch(token.surface())
    ]
    for match in re.finditer(f"(?={re.escape(form)})", text):
        start, end = match.start(), match.start() + len(form)
        edge = len(form) >= 5 and any(
            start >= first and end <= last and (start == first or end == last) for first, last in loose
        )
        if edge or (start in begins and end in ends):
            yield start, end
    wanted = _form_words(form)
    if wanted[-1][2] == "動詞":
        for number in range(len(tokens) - len(wanted) + 1):
            here = tokens[number : number + len(wanted)]
            same = all(token.surface() == word[0] for token, word in zip(here[:-1], wanted[:-1], strict=True))
            if same and here[-1].dictionary_form() == wanted[-1][1] and here[-1].surface() != wanted[-1][0]:
                yield here[0].begin(), here[-1].end()


def _is_allowed(form: str, start: int, end: int, text: str, allowed: Iterable[tuple[str, str]]) -> bool:
    for exception, within in allowed:
        if exception != form:
            continue
        for match in re.finditer(f"(?={re.escape(within)})", text):
            if match.start() <= start and end <= match.start() + len(within):
                return True
    return False


_STYLE = (
    (
        rf"(?<={_WORDS_OR_MARKS})[ \t]+(?=[{_JAPANESE}{_MARKS}A-Za-z0-9()])",
        "no space beside Japanese text (the gap is the style sheet's)",
    ),
    (
        rf"(?<=[A-Za-z0-9()%])[ \t]+(?={_WORDS_OR_MARKS})",
        "no space beside Japanese text (the gap is the style sheet's)",
    ),
    (r"\u3000", "no ideographic space"),
    (r"[０-９]+", "digits are half-width"),
    (r"[Ａ-Ｚａ-ｚ]+", "Latin letters are half-width"),
    (r"[，．]", "commas are 「、」 and full stops 「。」"),
    (rf"(?<=[{_JAPANESE}])[,.](?![0-9])", "commas are 「、」 and full stops 「。」"),
    (
        rf"(?<=[{_JAPANESE}])\(|(?<=[{_JAPANESE}])\)|[(](?=[{_JAPANESE}])|[)](?=[{_JAPANESE}])",
        "brackets beside Japanese text are full-width （）",
    ),
    (rf"(?<=[{_JAPANESE}])[:;!?]", "marks after Japanese text are full-width"),
    (r"[％＋＝＜＞＆＃＄＠＊／]", "signs are half-width"),
)


def style(text: str) -> list[Finding]:
    """Find what breaks the rules of writing: spaces, digits, marks, sentences that end in the plain form."""
    found = []
    marker = r"(?m)^[ \t]*(?:(?:[-*+>]|\d+[.)]|#{1,6})[ \t]+)+"
    body = re.sub(marker, lambda match: "\ufffc" * len(match[0]), text)
    for pattern, message in _STYLE:
        for match in re.finditer(pattern, body):
            found.append(Finding(match.start(), f"{message}."))
    found += plain_endings(body)
    return sorted(set(found))


_POLITE = frozenset(("です", "ます", "くださる", "下さる", "でございます"))
_ENDING = frozenset(("助動詞", "助詞", "動詞", "形容詞", "接尾辞"))


def plain_endings(text: str) -> list[Finding]:
    """Find the sentences that do not end in です or ます; a noun at the end is no sentence and passes."""
    found = []
    for line in re.finditer(r"[^\n]+", text):
        if "。" not in line[0]:
            continue
        tokens = words(line[0])
        for number, token in enumerate(tokens):
            if token.surface() != "。" or (number + 1 < len(tokens) and tokens[number + 1].surface() in "」』"):
                continue
            ending: list[Morpheme] = []
            for earlier in reversed(tokens[max(0, number - 6) : number]):
                if earlier.part_of_speech()[0] == "補助記号" and earlier.surface() in "）」』" and not ending:
                    continue
                if earlier.part_of_speech()[0] not in _ENDING:
                    break
                ending.append(earlier)
            if not ending or any(word.dictionary_form() in _POLITE for word in ending[:4]):
                continue
            if any(word.part_of_speech()[0] in ("動詞", "形容詞", "助動詞") for word in ending[:2]):
                found.append(
                    Finding(
                        line.start() + ending[-1].begin(),
                        "the sentence ends in the plain form; write です or ます.",
                    )
                )
    return found


def verb_ending(heading: str) -> list[Finding]:
    """Find a heading that ends in a verb; a heading is a noun, or a question that ends in か."""
    tokens = [word for word in words(heading) if word.part_of_speech()[0] not in ("補助記号", "記号", "空白")]
    if not tokens:
        return []
    part, _, _, _, _, inflection = tokens[-1].part_of_speech()
    if part == "助動詞" or (part in ("動詞", "形容詞") and not inflection.startswith("連用形")):
        return [Finding(tokens[-1].begin(), "the heading ends in a verb; end it in a noun.")]
    return []


_HEADING = re.compile(r"(?m)^[ \t]{0,3}#{1,6}[ \t]+(.*?)[ \t]*#*$")


def headings(text: str, kind: TextKind) -> list[Finding]:
    """Apply `verb_ending` to a title, or to the headings of a text."""
    if kind == "heading":
        return verb_ending(text)
    found = []
    for match in _HEADING.finditer(text):
        found += [Finding(match.start(1) + finding.offset, finding.message) for finding in verb_ending(match[1])]
    return found


def literal_bold(text: str, english: str = "") -> list[Finding]:
    """Find emphasis that a row of a page, Python-Markdown or CommonMark shows as literal asterisks or underscores.

    They disagree beside Japanese punctuation. What the English text shows literally, too, is meant (``**kwargs``).
    """
    shown, meant = ([_literals(engine, part) for engine in _RENDERERS.values()] for part in (text, english))
    if not any(Counter(here) - Counter(there) for here, there in zip(shown, meant, strict=True)):
        return []
    found: dict[Finding, list[str]] = {}
    for block in re.finditer(r"(?:[^\n]*\S[^\n]*(?:\n|\Z))+", text):
        for name, engine in _RENDERERS.items():
            plain = _plain(engine(_without_equations(block[0])))
            for match in _LITERAL.finditer(plain):
                around = plain[max(0, match.start() - 8) : match.end() + 8].replace("\n", " ").strip()
                place = block[0].find(match[0] + plain[match.end() : match.end() + 2])
                offset = block.start() + max(place, block[0].find(match[0]), 0)
                found.setdefault(Finding(offset, f"{match[0]} is shown as text: …{around}…"), []).append(name)
    return [Finding(one.offset, f"{one.message} (in {', '.join(found[one])}).") for one in sorted(found)]


_LITERAL = re.compile(r"\*+|__")
_COMMONMARK = MarkdownIt("commonmark").enable("table")


def _python_markdown(text: str) -> str:
    return str(python_markdown.markdown(text, extensions=["tables", "fenced_code", "attr_list"]))


def _commonmark(text: str) -> str:
    return str(_COMMONMARK.render(text))


class _NoKatex(Katex):
    """Sets every equation as a letter."""

    def __init__(self) -> None:
        pass

    def render(self, tex: str, display: bool, tagged: str | None = None) -> str:
        return "X"


def _as_row(text: str) -> str:
    context = Context(katex=_NoKatex(), language="ja", links=str, label=str)
    return render(text, Where("", lambda offset: (1, 1)), context)


_RENDERERS = {"a row": _as_row, "Python-Markdown": _python_markdown, "CommonMark": _commonmark}


def _without_equations(text: str) -> str:
    for span in reversed(spans(text)):
        if span.kind in ("formula", "display"):
            text = text[: span.start] + ("$X$" if span.kind == "formula" else "\n\n") + text[span.end :]
    return re.sub(r"\\[*_]", r"\\%", text)


def _plain(html: str) -> str:
    html = re.sub(r"<(pre|code)\b.*?</\1>", "X", html, flags=re.DOTALL)
    return unescape(re.sub(r"<[^>]*>", "", html))


def _literals(engine: Callable[[str], str], text: str) -> list[str]:
    return _LITERAL.findall(_plain(engine(_without_equations(text))))


class ToolError(Exception):
    """A tool that a check needs cannot be run; its text is one sentence that says what to do."""


_MARKS_OF_KIND: dict[TextKind, str] = {"prose": "", "heading": "# ", "item": "- "}


def textlint(
    texts: Sequence[tuple[str, TextKind]], config: Path, npm: Path, cache: Path | None = None
) -> list[list[Finding]]:
    """Let textlint read all texts in one run, by the rules of ``config``; ``npm`` is the folder that holds textlint.

    What it found in a text is kept in the file ``cache``, as long as rules and textlint stay the same.
    """
    node = find_node()
    if node is None or not (npm / "textlint").exists():
        what = "Node is" if node is None else "textlint is"
        where = npm.resolve().parent.as_posix()
        raise ToolError(f"{what} not installed; run `npm ci` with Node 20 or later in {where}.")
    installed = npm / ".package-lock.json"
    state = config.read_bytes() + (installed.read_bytes() if installed.exists() else b"")
    keys = [hashlib.sha256(state + f"{kind}\n{text}".encode()).hexdigest() for text, kind in texts]
    known = _known(cache)
    new = [number for number, key in enumerate(keys) if key not in known]
    if new:
        for number, found in zip(new, _run_textlint([texts[number] for number in new], config, npm, node), strict=True):
            known[keys[number]] = [[finding.offset, finding.message] for finding in found]
    if cache is not None and new:
        with suppress(OSError):  # without a cache textlint reads the texts again
            cache.parent.mkdir(parents=True, exist_ok=True)
            cache.write_text(json.dumps(dict(list(known.items())[-5000:]), ensure_ascii=False), encoding="utf-8")
    return [[Finding(offset, message) for offset, message in known[key]] for key in keys]


def _known(cache: Path | None) -> dict[str, list[list[Any]]]:
    if cache is None or not cache.exists():
        return {}
    try:
        return dict(json.loads(cache.read_text(encoding="utf-8")))
    except ValueError:  # a run was stopped while it wrote
        return {}


def _run_textlint(texts: Sequence[tuple[str, TextKind]], config: Path, npm: Path, node: str) -> Iterator[list[Finding]]:
    with tempfile.TemporaryDirectory() as folder:
        for number, (text, kind) in enumerate(texts):
            place = Path(folder, f"{number:06}.md")
            place.write_text(_MARKS_OF_KIND[kind] + text, encoding="utf-8", newline="\n")
        program = npm.resolve() / "textlint" / "bin" / "textlint.js"
        options = ["--config", str(config.resolve()), "--format", "json", f"{Path(folder).as_posix()}/*.md"]
        # Its rules are looked for from the folder that it runs in.
        where = npm.resolve().parent
        done = subprocess.run(
            [node, str(program), *options], cwd=where, capture_output=True, encoding="utf-8", check=False
        )
    try:
        results = json.loads(done.stdout)
    except json.JSONDecodeError:
        raise ToolError(f"textlint stopped: {' '.join((done.stderr or done.stdout).split())[:200]}") from None
    messages = {int(Path(result["filePath"]).stem): result["messages"] for result in results}
    for number, (text, kind) in enumerate(texts):
        units = text.encode("utf-16-le")  # textlint counts UTF-16 units
        found = set()
        for message in messages[number]:
            before = units[: 2 * max(0, message["index"] - len(_MARKS_OF_KIND[kind]))]
            rule, sentence = message["ruleId"].rpartition("/")[2], message["message"].split("\n")[0].strip()
            found.add(Finding(len(before.decode("utf-16-le", "ignore")), f"textlint, {rule}: {sentence}"))
        yield sorted(found)
