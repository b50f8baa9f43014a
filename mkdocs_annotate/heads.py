"""What stands in a page's `<head>`: title, description, addresses in every language, cards for those who link to it."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from html import unescape
from typing import Any
from urllib.parse import quote, urlsplit
from xml.sax.saxutils import escape, quoteattr

LOCALES = {"en": "en_US", "ja": "ja_JP", "de": "de_DE", "fr": "fr_FR", "es": "es_ES", "zh": "zh_CN", "ko": "ko_KR"}


@dataclass(frozen=True)
class Language:
    """One language of the site: `folder` is where it lives, empty for the default language, else ``ja/``."""

    code: str
    name: str
    folder: str = ""


def languages(names: Mapping[str, str]) -> tuple[Language, ...]:
    """Return the languages of the site from their codes and names; the first is the default."""
    first = next(iter(names))
    return tuple(Language(code, name, "" if code == first else f"{code}/") for code, name in names.items())


@dataclass(frozen=True)
class Head:
    """The head of one page; without the site's address it has no `url` and no `alternates`."""

    title: str
    description: str = ""
    url: str = ""
    alternates: list[tuple[str, str]] = field(default_factory=list)
    metas: list[tuple[str, str, str]] = field(default_factory=list)


def relative(target: str, page: str) -> str:
    """Return the way from a page's address to another one, both given from the site's root: `../ja/adam/`, `./`."""
    start = page.rpartition("/")[0]
    way = posixpath.relpath(target or ".", start or ".")
    return way + "/" if not target or target.endswith("/") else way


def plain(html: str) -> str:
    """Return the text of some HTML on one line, each equation as its author typed it in TeX."""
    html = re.sub(r"<(script|style|svg|title)\b.*?</\1>", "", html, flags=re.DOTALL)
    html = re.sub(r'<span class="katex-html".*?(?=<annotation|</math>|\Z)', "", html, flags=re.DOTALL)
    return " ".join(unescape(re.sub(r"<[^>]+>", "", html)).split())


def first_paragraph(html: str) -> str:
    """Return the text of the first paragraph of a page."""
    found = re.search(r"<p>(.*?)</p>", html, re.DOTALL)
    return plain(found[1]) if found else ""


def shorten(text: str, length: int = 160) -> str:
    """Cut a text at a sentence or a word, so that a description shows whole."""
    text = " ".join(text.split())
    if len(text) <= length:
        return text
    sentence = re.match(rf".{{60,{length - 1}}}(?:[。．]|[.!?](?=\s))", text)
    if sentence:
        return sentence[0]
    words = text[:length].rpartition(" ")[0]
    return (words if len(words) > length - 40 else text[: length - 1]) + "…"  # Japanese has no spaces to cut at


def head(
    title: str,
    html: str,
    meta: Mapping[str, Any],
    page: str,
    site_name: str,
    address: str,
    language: Language,
    languages: Sequence[Language],
    card: str = "",
) -> Head:
    """Put a page's head together; `address` is the site's, `page` the page's own below its language's folder.

    `card` is a picture for those who link to the page, ``assets/card.{language}.png``.

    A page that isn't translated stands for the English one: that is its canonical address, and it has no alternates.
    """
    translated = not meta.get("untranslated")
    own = language if translated else languages[0]
    name = title if not page or title == site_name else f"{title} · {site_name}"
    description = shorten(str(meta.get("description") or first_paragraph(html)))
    url = f"{address}{own.folder}{page}" if address else ""
    alternates = [(each.code, f"{address}{each.folder}{page}") for each in languages] if url and translated else []
    if alternates:
        alternates.append(("x-default", alternates[0][1]))
    image = f"{address}{card.format(language=own.code)}" if address and card else ""
    metas = [
        ("name", "description", description),
        ("property", "og:type", "article" if page else "website"),
        ("property", "og:site_name", site_name),
        ("property", "og:title", title),
        ("property", "og:description", description),
        ("property", "og:url", url),
        ("property", "og:image", image),
        ("property", "og:locale", LOCALES.get(own.code, own.code)),
        *(("property", "og:locale:alternate", LOCALES.get(each.code, each.code)) for each in languages if each != own),
        ("name", "twitter:card", "summary_large_image" if image else "summary"),
        ("name", "twitter:title", title),
        ("name", "twitter:description", description),
        ("name", "twitter:image", image),
    ]
    return Head(name, description, url, alternates, [meta for meta in metas if meta[2]])


def sitemap(address: str, language: Language, languages: Sequence[Language], pages: Iterable[str]) -> str:
    """Return the sitemap of one language; each page lists itself and its other languages."""
    lines = [
        '<?xml version="1.0" encoding="UTF-8"?>',
        '<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9" xmlns:xhtml="http://www.w3.org/1999/xhtml">',
    ]
    for page in pages:
        lines.append(f"<url><loc>{escape(f'{address}{language.folder}{page}')}</loc>")
        for code, folder in [*((each.code, each.folder) for each in languages), ("x-default", languages[0].folder)]:
            href = quoteattr(f"{address}{folder}{page}")
            lines.append(f'<xhtml:link rel="alternate" hreflang="{code}" href={href}/>')
        lines.append("</url>")
    return "\n".join([*lines, "</urlset>", ""])


def address_of(site_url: str | None) -> str:
    """Return the site's address with a slash at its end, or nothing if there is none."""
    if not site_url or not urlsplit(site_url).netloc:
        return ""
    return quote(site_url.rstrip("/"), safe=":/?#[]@!$&'()*+,;=%~") + "/"
