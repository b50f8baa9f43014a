"""Anchors: what the committed list notices."""

from __future__ import annotations

from pathlib import Path

import pytest

from mkdocs_annotate import anchors, page
from mkdocs_annotate.anchors import AnchorsError

SOURCE = '''\
class A:
    """One."""

    def f(self):
        # Two.
        x = 1
        # Three.
        y = 2
'''


@pytest.fixture
def listed(tmp_path: Path) -> Path:
    (tmp_path / "a.py").write_text(SOURCE)
    assert anchors.update(tmp_path / "anchors.tsv", pages(tmp_path))
    return tmp_path


def pages(folder: Path) -> dict[str, list[tuple[str, str]]]:
    return {path.stem: page.digests(path, path.stem) for path in sorted(folder.glob("*.py"))}


def changes(folder: Path, old: str, new: str) -> list[tuple[str, str, str]]:
    assert old in SOURCE
    (folder / "a.py").write_text(SOURCE.replace(old, new))
    return [(each.anchor, each.what, each.now) for each in anchors.check(folder / "anchors.tsv", pages(folder))]


def test_the_list_is_in_the_order_of_the_source_and_stable(listed: Path) -> None:
    text = (listed / "anchors.tsv").read_text()
    assert [line.split("\t")[:2] for line in text.splitlines()] == [
        ["page", "anchor"],
        ["a", "A"],
        ["a", "A.f"],
        ["a", "A.f-2"],
        ["a", "A.f-3"],
    ]
    assert not anchors.update(listed / "anchors.tsv", pages(listed))
    assert anchors.check(listed / "anchors.tsv", pages(listed)) == []


def test_an_edited_row_keeps_its_anchor_and_is_listed(listed: Path) -> None:
    assert changes(listed, "# Two.", "# Two and a half.") == [("A.f-2", "edited", "")]


def test_edited_code_is_listed_too(listed: Path) -> None:
    assert changes(listed, "x = 1", "x = 3") == [("A.f-2", "edited", "")]


def test_a_row_that_moved_names_its_new_anchor(listed: Path) -> None:
    found = changes(listed, "# Two.", "# Zero.\n        w = 0\n        # Two.")
    assert found == [("A.f-2", "moved", "A.f-3"), ("A.f-3", "moved", "A.f-4"), ("A.f-4", "new", "")]


def test_a_row_that_is_gone_is_listed(listed: Path) -> None:
    assert changes(listed, "        # Three.\n        y = 2\n", "") == [("A.f-3", "gone", "")]


def test_white_space_at_the_end_of_a_row_changes_nothing(listed: Path) -> None:
    assert changes(listed, "y = 2\n", "y = 2\n\n\n") == []


def test_a_page_that_is_gone_is_listed_and_a_new_one_too(listed: Path) -> None:
    (listed / "a.py").rename(listed / "b.py")
    found = [(each.page, each.what) for each in anchors.check(listed / "anchors.tsv", pages(listed))]
    assert found == [("b", "new")] * 4 + [("a", "gone")] * 4


def test_a_broken_list_is_refused_with_its_line(listed: Path) -> None:
    (listed / "anchors.tsv").write_text("page\tanchor\tdigest\na A 1\n")
    with pytest.raises(AnchorsError, match=r"anchors\.tsv:2: a line is page, anchor and digest"):
        anchors.check(listed / "anchors.tsv", pages(listed))
