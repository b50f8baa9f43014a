"""What a template knows of the site around its page: languages and the ways to them, labels, addresses, assets."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from .heads import Head, Language, head, relative
from .labels import Labels

FONTS = ("source-serif-4-latin-400-normal.woff2", "source-serif-4-latin-400-italic.woff2")
STYLES = ("assets/katex.min.css", "assets/annotate.css")
SCRIPT = "assets/annotate.js"


@dataclass(frozen=True)
class Site:
    """The site as it is in one language."""

    language: Language
    labels: Mapping[Language, Labels]
    address: str
    """Where the site will be, with a slash at its end; empty if that isn't known."""
    repo: str
    """Address of the repository, or empty."""
    ref: str
    """Branch, tag or commit that the links into the repository name."""
    figures: Path

    @property
    def label(self) -> Labels:
        """Labels in the language of the page."""
        return self.labels[self.language]

    def head(self, title: str, html: str, meta: Mapping[str, Any], page: str, *, name: str, card: str) -> Head:
        """Return what stands in a page's `<head>`."""
        return head(title, html, meta, page, name, self.address, self.language, tuple(self.labels), card)

    def source(self, file: str, line: int = 0) -> str:
        """Return the address of a source file in the repository."""
        return f"{self.repo.rstrip('/')}/blob/{self.ref}/{file}" + (f"#L{line}" if line else "")

    def figure(self, name: str) -> str:
        """Return a figure as inline SVG in the language of the page, else in the default one, else nothing."""
        for code in (self.language.code, next(iter(self.labels)).code):
            path = self.figures / f"{name}.{code}.svg"
            if path.is_file():
                return re.sub(r"\A.*?(?=<svg)", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
        return ""

    def around(self, page: str) -> dict[str, object]:
        """Return what the templates call `site`, seen from a page's address below the language's folder."""
        here = self.language.folder + page
        return self._seen(relative("", here), {each: relative(each.folder + page, here) for each in self.labels})

    def around_error(self) -> dict[str, object]:
        """Return the same for an error page, which is shown at any address and therefore knows only whole paths."""
        root = urlsplit(self.address).path or "/"
        return self._seen(root, {each: root + each.folder for each in self.labels})

    def _seen(self, root: str, ways: Mapping[Language, str]) -> dict[str, object]:
        return {
            "language": self.language.code,
            "default": next(iter(self.labels)).code,
            "languages": [
                {"code": each.code, "name": each.name, "url": way, "current": each == self.language, "label": label}
                for (each, way), label in zip(ways.items(), self.labels.values(), strict=True)
            ],
            "root": root,
            "home": root + self.language.folder,
            "label": self.label,
            "repo": self.repo,
            "source": self.source,
            "figure": self.figure,
        }


def assets(modules: Path) -> Iterator[tuple[str, bytes]]:
    """Go through KaTeX's stylesheet and fonts, and the text face if it is installed, out of a `node_modules`."""
    katex = modules / "katex" / "dist"
    if (katex / "katex.min.css").is_file():
        css = (katex / "katex.min.css").read_text(encoding="utf-8")
        # Every browser that knows light-dark() takes woff2: the other formats stay out of the site.
        yield "assets/katex.min.css", re.sub(r',url\([^)]*\) ?format\("(?:woff|truetype)"\)', "", css).encode()
    texts = modules / "@fontsource" / "source-serif-4" / "files"
    for font in (*sorted((katex / "fonts").glob("*.woff2")), *(texts / name for name in FONTS)):
        if font.is_file():
            yield f"assets/fonts/{font.name}", font.read_bytes()


def first_line(code: str) -> int:
    """Return the number of the first line of a row's code, 0 if it has none."""
    found = re.search(r'id="L(\d+)"', code)
    return int(found[1]) if found else 0


_LITERAL = re.compile(r"(<(pre|textarea|script|style)\b.*?</\2>)", re.DOTALL)


def squeeze(page: str) -> str:
    """Leave out indentation and empty lines, which nobody sees, save where they count."""
    parts = _LITERAL.split(page)
    parts[::3] = [re.sub(r"\s*\n\s*", "\n", part) for part in parts[::3]]
    return "".join(part for number, part in enumerate(parts) if number % 3 < 2)
