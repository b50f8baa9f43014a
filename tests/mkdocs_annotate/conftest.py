"""What the engine's tests share: KaTeX, and pages made of a few lines of source."""

from __future__ import annotations

import re
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mkdocs_annotate.catalogue import Catalogue
from mkdocs_annotate.equations import Katex
from mkdocs_annotate.page import AnnotatedPage, annotate

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(Path(__file__).parent))  # for what stands in several files of tests


@pytest.fixture(scope="session")
def katex() -> Iterator[Katex]:
    """KaTeX, one Node process for all tests."""
    with Katex(ROOT / "node_modules" / "katex") as katex:
        yield katex


@pytest.fixture
def page(katex: Katex, tmp_path: Path) -> Callable[..., AnnotatedPage]:
    """Make the page of a source that stands in the test."""

    def make(
        source: str, catalogue: Catalogue | None = None, language: str = "en", name: str = "page"
    ) -> AnnotatedPage:
        path = tmp_path / f"{name}.py"
        path.write_text(textwrap.dedent(source).lstrip("\n"), "utf-8")
        return annotate(
            path,
            name=name,
            language=language,
            catalogue=catalogue,
            katex=katex,
            figures_dir=tmp_path / "figures",
            label=str,
        )

    return make


def tex_of(made: str) -> list[str]:
    """List the TeX that some HTML carries in its annotations."""
    import html

    return [html.unescape(tex) for tex in re.findall(r"<annotation[^>]*>(.*?)</annotation>", made, re.DOTALL)]
