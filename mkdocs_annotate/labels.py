"""The words of the site's own interface, and their translations.

A label is its English text. `LABELS` lists them all, so that a catalogue can be made of them: ``site.po`` holds them in
the context ``label``, and the titles that ``nav`` in ``mkdocs.yml`` gives in the context ``nav``.
"""

from __future__ import annotations

from collections.abc import Iterator
from html import escape, unescape

from .catalogue import Catalogue, Message

LABELS = (
    "Pages",
    "Close",
    "Language",
    "Light or dark",
    "Repository",
    "Where this page is",
    "Outline",
    "View code",
    "Symbols",
    "in the code",
    "kept as",
    "Show where it is used",
    "The rule",
    "Use it when",
    "Don't when",
    "Link to this row",
    "Not translated yet: this is the English text",
    "Not translated yet: this is the English page",
    "Previous and next page",
    "Previous",
    "Next",
    "The pages, in reading order",
    "Open large",
    "This page falls between two numbers",
    "There is nothing at this address. The pages are here:",
    "This page could not be made:",
    "Show the code",
    "Download",
    "Open in Colab",
    "Not yet run on CUDA: these are the outputs of a CPU",
    "Run on CUDA, too:",
    "by an earlier version",
)


class Labels:
    """Labels and navigation titles in one language, as HTML; remembers which ones its catalogue lacks."""

    def __init__(self, catalogue: Catalogue | None) -> None:
        self.catalogue = catalogue
        self.missing: list[str] = []

    def __call__(self, text: str) -> str:
        """Return a label of the interface."""
        if text not in LABELS:
            raise KeyError(f'"{text}" is not among the labels of labels.py; add it there.')
        return escape(self._look_up("label", text))

    def nav(self, title: str) -> str:
        """Return a title that `nav` in mkdocs.yml gives, which is HTML to MkDocs; its translation is a text."""
        translation = self._look_up("nav", title)
        return title if translation == title else escape(unescape(translation))

    def _look_up(self, context: str, text: str) -> str:
        if self.catalogue is None:
            return text
        entry = self.catalogue.lookup(context, text)
        if entry.state != "ok" and text not in self.missing:
            self.missing.append(text)
        return entry.text


def titles(nav: object) -> Iterator[str]:
    """Go through the titles that `nav` in mkdocs.yml gives, in its order."""
    if isinstance(nav, list):
        for item in nav:
            yield from titles(item)
    elif isinstance(nav, dict):
        for title, value in nav.items():
            yield str(title)
            yield from titles(value)


def messages(nav: object) -> list[Message]:
    """List what ``site.po`` holds: every label, and every title of `nav`."""
    named = dict.fromkeys(titles(nav))
    return [Message("label", text) for text in LABELS] + [Message("nav", text) for text in named]
