"""Notebooks as pages: text like that of the other pages, outputs as mkdocs-jupyter makes them of each kind."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from lessons import code, failed, lesson, printed, save, shown, text

from mkdocs_annotate.catalogue import Catalogue, Item
from mkdocs_annotate.cells import GREY, NotebookPage, annotate
from mkdocs_annotate.equations import EquationError, Katex
from mkdocs_annotate.notebooks import NotebookError, sources
from mkdocs_annotate.search import entries

convert = pytest.importorskip("mkdocs_jupyter.convert")

TOP = text("top", "# A lesson\n\nWhat it is about.")
SVG = f'<svg width="4" height="3" viewBox="0 0 4 3"><defs><path id="p" d="M0 0"/><clipPath id="c"/></defs>\
<use href="#p" xlink:href="#p" clip-path="url(#c)" stroke="{GREY}"/><path stroke="#bd6a44"/></svg>'
PNG = base64.b64encode(b"\x89PNG\r\n\x1a\nsmall").decode()

Make = Callable[..., NotebookPage]


@pytest.fixture
def made(tmp_path: Path, katex: Katex, monkeypatch: pytest.MonkeyPatch) -> Make:
    """Make the page of some cells below a title; in Japanese if there are translations by the cell's id."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "toys").mkdir()
    (tmp_path / "toys" / "toy.py").write_text("class Toy:\n    pass\n\n\nX = 1\n", encoding="utf-8")

    def make(*cells: dict[str, Any], first: dict[str, Any] = TOP, ja: dict[str, str] | None = None) -> NotebookPage:
        notebook = lesson(first, *cells)
        path = save(Path("lessons") / "lesson.ipynb", notebook)
        items = [
            Item(f"lesson#{cell['id']}", cell["source"], (ja or {})[cell["id"]], line=70, pieces=[(0, 70), (5, 71)])
            for cell in notebook["cells"]
            if cell["id"] in (ja or {})
        ]
        return annotate(
            path,
            convert.nb2html(str(path), show_input=True),
            package=Path("toys"),
            language="en" if ja is None else "ja",
            catalogue=None if ja is None else Catalogue(Path("lesson.po"), items, None),
            katex=katex,
            label=str,
            links=lambda target: f"../{target}" if "toy" in target else None,
        )

    return make


def output(page: NotebookPage) -> str:
    """The only output of a page."""
    (found,) = re.findall(r'<div class="jp-OutputArea-output"[^>]*>(.*)</div></div></div>$', page.html, re.DOTALL)
    return str(found)


def tex_of(made: str) -> list[str]:
    return [unescape(tex) for tex in re.findall(r"<annotation[^>]*>(.*?)</annotation>", made, re.DOTALL)]


# Text


def test_the_first_cell_is_the_head_and_what_stands_after_the_lede_begins_the_page(made: Make) -> None:
    page = made(first=text("top", "# A *lesson*\n\nWhat `it` is about.\n\nMore of it.\n\n- and more"))
    assert (page.name, page.title, page.description) == ("lesson", "A lesson", "What it is about.")
    assert page.title_html == "A <em>lesson</em>"
    assert page.lede == "<p>What <code>it</code> is about.</p>"
    assert page.html.startswith("<p>More of it.</p>")
    assert "<li>and more</li>" in page.html
    assert page.todo_count == 0
    assert page.problems == ()


@pytest.mark.parametrize("first", [text("top", "No title."), text("top", ""), code("top", "# A comment")])
def test_a_notebook_without_a_title_is_refused(made: Make, first: dict[str, Any]) -> None:
    with pytest.raises(
        NotebookError, match=r"lessons/lesson\.ipynb:1: the first cell is no text that begins with `# `"
    ):
        made(first=first)


def test_headings_have_the_anchors_of_the_english_ones_in_every_language(made: Make) -> None:
    cells = [
        text("a", "## Where it runs\n\nWords.\n\n### In detail {#detail}\n\n## Where it runs"),
        text("b", "```\n## no heading\n```\n\n## Then $x^2$"),
    ]
    ja = {
        "top": "# 授業\n\n説明です。",
        "a": "## 実行環境\n\n本文です。\n\n### 詳細 {#detail}\n\n## 環境",
        "b": "```\n## no heading\n```\n\n## 次に$x^2$",
    }
    english, japanese = made(*cells), made(*cells, ja=ja)
    ids = ["where-it-runs", "detail", "where-it-runs-2", "then-x-2"]
    for page in (english, japanese):
        assert [item.id for item in page.outline] == ids
        assert re.findall(r'<h(\d) id="([^"]*)"', page.html) == list(zip("2322", ids, strict=True))
        assert page.anchors == {"top", *ids}
    assert [item.name for item in japanese.outline][:3] == ["実行環境", "詳細", "環境"]
    assert (japanese.title, japanese.todo_count, japanese.todo_lede) == ("授業", 0, False)


def test_a_cell_that_is_not_translated_is_english_and_marked_and_counted(made: Make) -> None:
    cells = [text("a", "## A heading\n\nWords."), text("b", "Words, too.")]
    page = made(*cells, ja={"top": "# 授業\n\n説明です。", "b": "言葉です。"})
    assert re.fullmatch(
        r'<div class="todo" lang="en"><span class="label" lang="ja">Not translated yet[^<]*</span>'
        r'<h2 id="a-heading">A heading.*</h2>\s*<p>Words.</p></div><p>言葉です。</p>',
        page.html,
    )
    assert page.todo_count == 1
    page = made(*cells, ja={})
    assert page.todo_lede
    assert page.title == "A lesson"
    assert page.todo_count == 3


def test_equations_are_set_while_the_page_is_made(made: Make) -> None:
    page = made(text("a", "So $a < b$ and\n\n$$\\sum_i x_i$$"), first=text("top", "# On $x^2$\n\nOf $y$."))
    assert tex_of(page.title_html) == ["x^2"]
    assert tex_of(page.lede) == ["y"]
    assert tex_of(page.html) == ["a < b", "\\sum_i x_i"]
    assert 'class="katex' in page.html
    assert page.title == "On x2"


def test_an_equation_that_katex_rejects_is_named_with_notebook_cell_and_line(made: Make) -> None:
    cell = text("broken", "Words.\n\nHere $\\nonsense{x}$ stands.")
    with pytest.raises(EquationError, match=r'^lessons/lesson\.ipynb, cell "broken":3:\d+: '):
        made(cell)
    with pytest.raises(EquationError, match=r'^lessons/lesson\.ipynb, cell "top":3:\d+: '):
        made(first=text("top", "# Lesson\n\nOf $\\nonsense$."))
    with pytest.raises(EquationError, match=r"^lesson\.po:71:\d+: "):
        made(text("b", "Of $x$."), ja={"top": TOP["source"], "b": "言葉です$\\nonsense$。"})


def test_html_in_text_is_shown_as_text_and_leads_nowhere(made: Make) -> None:
    cell = text("a", '<script>alert(1)</script> <img src=x onerror="x"> [x](javascript:alert(1))\n\n<div onclick="x">')
    page = made(cell, first=text("top", "# <b>A</b>\n\n<i>lede</i>"))
    assert not re.search(r"<(script|img|div|b|i)\b", page.html + page.title_html + page.lede)
    assert "&lt;script&gt;alert(1)" in page.html
    assert "href" not in page.html
    assert page.title == "<b>A</b>"


def test_links_of_text_lead_to_pages_and_one_that_leads_nowhere_is_named(made: Make) -> None:
    page = made(text("a", "See [it](../toys/toy.py#Toy).\n\nAnd [that](nowhere.md)."))
    assert '<a href="../../toys/toy.py#Toy">it</a>' in page.html
    assert page.problems == (
        'lessons/lesson.ipynb, cell "a":3:1: the link to nowhere.md leads nowhere, so it is shown as text.',
    )


# Code


def test_code_is_shown_as_it_stands_with_its_count_which_the_search_leaves_out(made: Make) -> None:
    page = made(code("c", 'x = "<b>"  # 1 < 2', printed("a < b\n"), count=77), code("e", "", count=None))
    assert re.search(r'<div class="jp-InputPrompt" aria-hidden="true">\[77\]</div>', page.html)
    assert re.sub(r"<[^>]*>", "", page.html.partition("<code>")[2].partition("</code>")[0]) == (
        'x = "&lt;b&gt;"  # 1 &lt; 2\n'
    )
    assert page.html.count("jp-InputPrompt") == 1
    assert 'tabindex="0"' in page.html
    (entry,) = entries("lesson/", page.title, page.html, "What it is about.")
    assert "77" not in entry["text"]
    assert "What it is about." in entry["text"]
    assert "a &lt; b" in entry["text"]


def test_names_of_the_package_lead_to_their_pages(made: Make) -> None:
    page = made(code("a", "from toys.toy import X, Toy as T\nfrom json import loads\n"), code("b", "T(X, loads)"))
    links = re.findall(r'<a class="ref" href="([^"]*)">(.*?)</a>', page.html)
    assert {(href, re.sub("<.*?>", "", name)) for href, name in links} == {("../../toys/toy.py#Toy", "T")}
    assert len(links) == 2


def test_code_with_the_tag_hide_input_is_folded_away_and_its_output_is_not(made: Make) -> None:
    page = made(code("c", "x", printed("shown\n"), tags=("hide-input",)), code("d", "y"))
    folded = re.findall(r"<details><summary>(.*?)</summary>(.*?)</details>", page.html, re.DOTALL)
    assert [summary for summary, _ in folded] == ["Show the code"]
    assert "<pre" in folded[0][1]
    assert "shown" in page.html.partition("</details>")[2]
    assert page.html.count("<details>") == 1


# Outputs


TABLE = "<table class='dataframe'><tr><td>1</td></tr></table>"
RED = "\x1b[31mred\x1b[0m and \x1b[1mbold\x1b[0m\n"


@pytest.mark.parametrize(
    ("shows", "wanted"),
    [
        (printed("a < b\n  c\n"), '<pre tabindex="0">a &lt; b\n  c\n</pre>'),
        (
            printed(RED),
            '<pre tabindex="0"><span class="ansi-red-fg">red</span> and <span class="ansi-bold">bold</span>\n</pre>',
        ),
        (shown(text_plain="1 < 2"), '<pre tabindex="0">1 &lt; 2</pre>'),
        (
            shown(text_plain="x", text_html='<pre style="x: y">epoch <b>1</b></pre>'),
            '<pre tabindex="0">epoch <b>1</b></pre>',
        ),
        (shown(text_plain="x", text_html=f"<style scoped>td{{}}</style>{TABLE}"), TABLE.replace("'", '"')),
    ],
)
def test_an_output_is_what_mkdocs_jupyter_makes_of_it_without_styles_and_scripts(
    made: Make, shows: dict[str, Any], wanted: str
) -> None:
    page = made(code("c", "x", shows))
    assert output(page).replace('<pre tabindex="0">\n', '<pre tabindex="0">') == wanted
    assert page.problems == ()


def test_an_output_that_only_a_script_makes_is_reported(made: Make) -> None:
    script = shown(text_plain="x", text_html="<script>alert(1)</script><p>after</p>")
    for output_ in (script, shown(text_plain="x", application_javascript="alert(1)")):
        page = made(code("c", "x", output_))
        assert "alert" not in page.html
        (problem,) = page.problems
        assert problem.startswith(
            'lessons/lesson.ipynb: the cell "c" shows what only a script makes, and pages run none'
        )


def test_an_error_that_is_meant_to_be_is_shown_and_another_is_refused(made: Make) -> None:
    page = made(code("c", "1 / 0", failed("ZeroDivisionError", "division by zero"), tags=("raises-exception",)))
    assert re.search(r'<pre tabindex="0">\n?<span class="ansi-red-fg">ZeroDivisionError</span>: div', output(page))
    with pytest.raises(NotebookError, match='the cell "c" has failed'):
        made(code("c", "1 / 0", failed()))
    with pytest.raises(NotebookError, match='the cell "c" was not executed'):
        made(code("c", "x", count=None))


def test_outputs_stand_in_their_order_below_their_own_cell(made: Make) -> None:
    page = made(
        code("a", "x", printed("first\n"), shown(text_plain="second")),
        text("t", "Text."),
        code("b", "y", printed("third\n")),
    )
    places = [page.html.index(word) for word in ("first", "second", "Text.", "third")]
    assert places == sorted(places)
    assert page.html.count('<div class="cell jp-CodeCell">') == 2


def test_outputs_that_mkdocs_jupyter_left_out_are_not_lost_in_silence(
    made: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(convert, "nb2html", lambda *_, **__: "<p>something else</p>")
    made(code("c", "x"))
    with pytest.raises(NotebookError, match='makes no page of the cell "c", so its outputs would be lost'):
        made(code("c", "x", printed("1\n")))


# Pictures


def test_a_drawing_has_its_caption_for_all_readers_and_the_ink_of_the_page(made: Make) -> None:
    caption = text("under", "A **curve** that falls as $x^2$.", "caption")
    page = made(code("draw", "x", shown(text_plain="x", image_svg_xml=SVG)), caption, text("t", "After."))
    (figure,) = re.findall(r"<figure>(.*?)</figure>", page.html, re.DOTALL)
    assert re.match(
        r'<svg\b[^>]* role="img" aria-labelledby="draw-figure"|<svg role="img" aria-labelledby="draw-figure"', figure
    )
    assert re.search(r'<figcaption><span id="draw-figure">A <strong>curve</strong> that falls', figure)
    assert '<span class="stamp"><span>CPU, torch 2.10, Python 3.11, seed 0, 1 s</span></span></figcaption>' in figure
    assert page.html.count("A <strong>curve</strong>") == 1
    assert re.findall(r' id="(draw-[^"]*)"', figure) == ["draw-figure-p", "draw-figure-c", "draw-figure"]
    assert re.findall(r'href="#([^"]*)"', figure) == ["draw-figure-p"] * 2
    assert "url(#draw-figure-c)" in figure
    assert 'stroke="currentColor"' in figure
    assert 'stroke="#bd6a44"' in figure
    assert GREY not in figure
    (tag,) = re.findall(r"<svg[^>]*>", figure)
    assert " width=" not in tag
    assert " height=" not in tag
    assert 'viewbox="0 0 4 3"' in tag.lower()
    assert page.problems == ()
    assert "draw-figure" in page.anchors


def test_a_picture_has_its_caption_as_the_text_that_stands_for_it(made: Make) -> None:
    caption = text("under", r'A "curve" \1 < $x^2$.', "caption")
    page = made(code("draw", "x", shown(text_plain="<Figure>", image_png=PNG)), caption)
    (image,) = re.findall(r"<figure>(<img[^>]*>)", page.html)
    assert f"data:image/png;base64,{PNG}" in image
    assert re.findall(r' alt="([^"]*)"', image) == [r"A &quot;curve&quot; \1 &lt; x2."]
    assert page.problems == ()


def test_a_drawing_keeps_its_style_and_its_scripts_to_itself(made: Make) -> None:
    """matplotlib's drawings set the ends of all lines."""
    inner = '<metadata><a id="m"/></metadata><style type="text/css"><![CDATA[*{stroke-linecap: butt}]]></style>'
    svg = SVG.replace("<defs>", f"<script>alert(1)</script>{inner}<defs>")
    page = made(
        code("draw", "x", shown(image_svg_xml=f'<?xml version="1.0"?>\n<!DOCTYPE svg PUBLIC "x" "y">\n{svg}')),
        text("under", "A curve.", "caption"),
    )
    assert "<figure><svg" in page.html
    assert '<style type="text/css">[aria-labelledby="draw-figure"]{*{stroke-linecap: butt}}</style>' in page.html
    assert not re.search("script|metadata|CDATA", page.html)


def test_a_drawing_inside_an_output_of_html_is_a_figure_too(made: Make) -> None:
    page = made(code("draw", "x", shown(text_html=f"<p>Before.</p>{SVG}")), text("under", "A curve.", "caption"))
    assert "<figure><p>Before.</p><svg" in page.html
    assert 'id="draw-figure-p"' in page.html
    assert 'stroke="currentColor"' in page.html


def test_a_caption_is_translated_or_marked(made: Make) -> None:
    cells = code("draw", "x", shown(image_svg_xml=SVG)), text("under", "A curve.", "caption")
    page = made(*cells, ja={"top": "# 授業", "under": "曲線です。"})
    assert '<figcaption><span id="draw-figure">曲線です。</span>' in page.html
    page = made(*cells, ja={"top": "# 授業"})
    assert re.search(r'<figcaption>.*lang="en".*A curve\.', page.html)
    assert page.todo_count == 1


def test_a_picture_without_a_caption_is_reported(made: Make) -> None:
    for after in ((), (text("t", "No caption."),), (code("d", "y"), text("t", "Too late.", "caption"))):
        page = made(code("draw", "x", shown(image_png=PNG)), *after)
        assert page.problems == (
            'lessons/lesson.ipynb: the cell "draw" shows a picture, and no Markdown cell with the tag `caption` '
            "after it says what is to be seen.",
        )


def test_two_pictures_of_one_cell_keep_their_names_apart(made: Make) -> None:
    drawing = shown(text_plain="x", image_svg_xml=SVG)
    page = made(code("draw", "x", drawing, drawing), text("under", "Two curves.", "caption"))
    ids = re.findall(r' id="([^"]*)"', page.html)
    assert len(ids) == len(set(ids)) == 6
    assert re.findall(r'aria-labelledby="([^"]*)"', page.html) == ["draw-figure", "draw-figure-2"]


# Runs


def test_the_run_on_a_gpu_is_told_with_its_stamp_and_whether_it_is_one_of_an_earlier_version(
    made: Make, tmp_path: Path
) -> None:
    cells = [TOP, code("c", "x")]
    page = made(*cells[1:])
    assert str(page.stamp) == "CPU, torch 2.10, Python 3.11, seed 0, 1 s"
    assert page.gpu is None
    assert not page.gpu_stale
    stamp = {"device": "A GPU", "torch": "2.11", "python": "3.12", "seed": 1, "seconds": 2.0}
    for found, stale in (({"cells": "old"}, True), (sources(lesson(*cells), Path("toys")), False)):
        save(tmp_path / "lessons" / "lesson.cuda.ipynb", lesson(*cells, stamp=stamp | {"sources": found}))
        page = made(*cells[1:])
        assert str(page.gpu) == "A GPU, torch 2.11, Python 3.12, seed 1, 2 s"
        assert page.gpu_stale == stale
    save(tmp_path / "lessons" / "lesson.cuda.ipynb", lesson(TOP, code("c", "x", failed())))
    with pytest.raises(NotebookError, match=r'lesson\.cuda\.ipynb:\d+: the cell "c" has failed'):
        made(*cells[1:])
