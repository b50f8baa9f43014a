"""What a figure says, in the languages of the site.

The English words stand in the drawing, the others in `locale/<language>/figures.po`: one entry a sentence, its context
`figures:<name of the figure>`. A computed number is a `{name}` in the sentence, so that no translator copies a number.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

FIELD = re.compile(r"\{\w+\}")
CATALOGUE = "figures.po"


class WordsError(Exception):
    """A sentence of a figure is missing, or its catalogue cannot be read."""


class Words:
    """The sentences of one figure in one language; `used` remembers what was asked for."""

    def __init__(self, figure: str, language: str = "en", translations: dict[str, str] | None = None) -> None:
        self.figure = figure
        self.language = language
        self.translations = translations
        self.used: list[str] = []

    def __call__(self, english: str, **numbers: object) -> str:
        """Return the sentence in this language with its numbers in place."""
        if english not in self.used:
            self.used.append(english)
        sentence = english
        if self.translations is not None:
            sentence = self.translations.get(english, "")
            if not sentence:
                raise WordsError(
                    f"locale/{self.language}/{CATALOGUE}: no translation of {english!r}; "
                    f'add it with msgctxt "figures:{self.figure}"'
                )
        return sentence.format(**numbers)


def languages(locale: Path) -> dict[str, dict[str, dict[str, str]]]:
    """Read every language's catalogue: language -> figure -> English -> translation."""
    return {path.parent.name: read(path) for path in sorted(locale.glob(f"*/{CATALOGUE}"))}


def read(path: Path) -> dict[str, dict[str, str]]:
    """Read a gettext catalogue of figures: figure -> English -> translation; fuzzy entries count as missing."""
    figures: dict[str, dict[str, str]] = {}
    for number, block in _blocks(path.read_text(encoding="utf-8")):
        entry: dict[str, str] = {}
        key = ""
        for offset, line in enumerate(block):
            match = re.fullmatch(r'(?:(msgctxt|msgid|msgstr) )?("(?:[^"\\]|\\.)*")', line)
            if match is None or not (match[1] or key):
                raise WordsError(f"{path}:{number + offset}: expected msgctxt, msgid or msgstr and a quoted text")
            key = match[1] or key
            entry[key] = entry.get(key, "") + str(ast.literal_eval(match[2]))
        if not entry.get("msgid"):
            continue
        context = entry.get("msgctxt", "")
        if not context.startswith("figures:"):
            raise WordsError(f'{path}:{number}: an entry of this catalogue needs msgctxt "figures:<figure>"')
        figures.setdefault(context.removeprefix("figures:"), {})[entry["msgid"]] = entry.get("msgstr", "")
    return figures


def _blocks(text: str) -> list[tuple[int, list[str]]]:
    """Cut a catalogue at its empty lines: (number of the first line, lines without comments), fuzzy ones left out."""
    blocks: list[tuple[int, list[str]]] = []
    lines: list[str] = []
    start, fuzzy = 1, False
    for number, line in enumerate([*text.splitlines(), ""], 1):
        line = line.strip()
        if line.startswith("#"):
            fuzzy = fuzzy or (line.startswith("#,") and "fuzzy" in line)
        elif line:
            start = start if lines else number
            lines.append(line)
        else:
            if lines and not fuzzy:
                blocks.append((start, lines))
            lines, fuzzy = [], False
    return blocks
