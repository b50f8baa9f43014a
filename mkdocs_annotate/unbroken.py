"""No line begins with a closing mark: a browser breaks between a formula or code and the 、 that follows it."""

from __future__ import annotations

import re

_CLOSING = re.compile("[、。，．：；！？）」』】〕]+")
_TAG = re.compile(r"<(/?)(span|code|a)\b([^>]*)>")
_LONGEST = 30  # characters of code that fit any line


def unbroken(html: str) -> str:
    """Keep each formula and each short piece of code together with the closing marks after it."""
    if not _CLOSING.search(html):
        return html
    open_tags: list[re.Match[str]] = []
    found: list[tuple[int, int, int]] = []
    for tag in _TAG.finditer(html):
        if not tag[1]:
            open_tags += [tag] * (not tag[3].endswith("/"))
            continue
        first = open_tags.pop() if open_tags else None
        mark = _CLOSING.match(html, tag.end())
        if mark and first and first[2] == tag[2] and _is_one(first, html[first.end() : tag.start()]):
            found.append((first.start(), tag.end(), mark.end()))
    parts, done = [], 0
    for start, end, after in found:
        parts += [html[done:start], '<span class="unbroken">', html[start:end], html[end:after], "</span>"]
        done = after
    return "".join([*parts, html[done:]])


def _is_one(tag: re.Match[str], content: str) -> bool:
    if tag[2] == "span":
        return 'class="katex"' in tag[3]
    text = re.sub(r"<[^>]+>", "", content)
    return len(text) <= _LONGEST and (tag[2] == "code" or re.fullmatch(r"<code.*</code>", content) is not None)
