"""Which row an anchor stands for: a committed list, so that a link from elsewhere does not end at another text unseen.

``anchors.tsv`` has a line for each row of each page: the page, the anchor, a digest of the row's prose and code. A row
that is edited keeps its anchor. When rows are added or removed, the numbers behind them move: ``{#name}`` at the end of
a comment fixes the anchor of one for good.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from .errors import FileError

Pages = Mapping[str, Sequence[tuple[str, str]]]
"""The anchors of each page with their digests, as `page.digests` lists them."""

TITLE = "page\tanchor\tdigest"


class AnchorsError(FileError):
    """A list of anchors that can't be read."""


@dataclass(frozen=True)
class Change:
    """An anchor that does not stand for what the list says."""

    page: str
    anchor: str
    what: Literal["new", "gone", "moved", "edited"]
    line: int
    """Line of the list, 0 for an anchor that isn't in it."""
    now: str = ""
    """The anchor at which the row is now, if it moved."""

    def __str__(self) -> str:
        name = f"{self.page}/#{self.anchor}"
        return {
            "new": f"{name} is new.",
            "gone": f"{name} is gone: links to it end at the top of the page.",
            "moved": f"{name} was another row, which is now {self.now}: {{#{self.anchor}}} there keeps links right.",
            "edited": f"{name} is a row whose text or code changed.",
        }[self.what]


def read(path: Path) -> dict[tuple[str, str], tuple[str, int]]:
    """Read the list: for each page and anchor the digest, and the line it stands in. No file is an empty list."""
    known: dict[tuple[str, str], tuple[str, int]] = {}
    if not path.exists():
        return known
    for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
        cells = line.split("\t")
        if line == TITLE or not line.strip():
            continue
        if len(cells) != 3:
            raise AnchorsError(
                path, number, "a line is page, anchor and digest, with tabs between; run `make translate`."
            )
        known[cells[0], cells[1]] = (cells[2], number)
    return known


def check(path: Path, pages: Pages) -> list[Change]:
    """List what the anchors of some pages stand for in a way that the list doesn't know."""
    known = read(path)
    changes: list[Change] = []
    for page, rows in pages.items():
        here = dict(rows)
        places: dict[str, str] = {}
        for anchor, digest in rows:
            places.setdefault(digest, anchor)
        for (other, anchor), (digest, line) in known.items():
            if other != page or here.get(anchor) == digest:
                continue
            now = places.get(digest, "")
            if now and known.get((page, now), ("", 0))[0] != digest:
                changes.append(Change(page, anchor, "moved", line, now))
            else:
                changes.append(Change(page, anchor, "edited" if anchor in here else "gone", line))
        changes += [Change(page, anchor, "new", 0) for anchor, _ in rows if (page, anchor) not in known]
    for (page, anchor), (_, line) in known.items():
        if page not in pages:
            changes.append(Change(page, anchor, "gone", line))
    return changes


def update(path: Path, pages: Pages) -> bool:
    """Write the list for all pages, in the order of the source; return whether it changed."""
    text = "".join(f"{line}\n" for line in (TITLE, *_lines(pages)))
    if path.exists() and path.read_text("utf-8") == text:
        return False
    path.write_text(text, "utf-8", newline="\n")
    return True


def _lines(pages: Pages) -> Iterable[str]:
    for page in sorted(pages):
        for anchor, digest in pages[page]:
            yield f"{page}\t{anchor}\t{digest}"
