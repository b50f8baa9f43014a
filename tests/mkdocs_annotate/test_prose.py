"""Prose: comments are plain text first and Markdown second, in every language, and nothing in them becomes a tag."""

from __future__ import annotations

import html
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mkdocs_annotate import prose
from mkdocs_annotate.equations import EquationError, Katex
from mkdocs_annotate.prose import Context, Where, anchors, plain
from mkdocs_annotate.rows import SourceError
from mkdocs_annotate.symbols import read_symbols


class Stub:
    """Stands for KaTeX where a test is not about what KaTeX makes."""

    def render(self, tex: str, display: bool, tagged: str | None = None) -> str:
        return f"<math{' display' if display else ''}>{html.escape(tex)}</math>"


def context(**changes: Any) -> Context:
    return Context(
        **{"katex": Stub(), "language": "en", "links": lambda target: f"../{target}", "label": str, **changes}
    )


def locate(markdown: str) -> Where:
    return Where("page.py", lambda at: (markdown.count("\n", 0, at) + 1, at - markdown.rfind("\n", 0, at)))


def render(markdown: str, headings: tuple[str, ...] = (), level: int = 3, **changes: Any) -> str:
    return prose.render(markdown, locate(markdown), context(**changes), headings, level)


class Tags(HTMLParser):
    """The tags of some HTML in order, its attributes, and its text."""

    def __init__(self, made: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.open: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text: list[str] = []
        self.feed(made)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in ("img", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def text_of(made: str) -> str:
    return "".join(Tags(made).text)


# Plain text first.


def test_comments_that_look_like_markdown_are_text() -> None:
    made = render(
        "------------------------------------------------\n"
        "part 2 ####\n"
        "1986. A good year\n"
        "__init__ passes *args, **kwargs and 2*3*4 to file_name_x\n"
        "  an indented continuation\n"
        "!important\n"
        "name\n"
        "====\n"
        "# one mark\n"
    )
    assert set(Tags(made).tags) == {"p"}
    for literal in (
        "1986. A good year",
        "__init__ passes *args, **kwargs and 2*3*4 to file_name_x",
        "!important",
        "# one mark",
    ):
        assert literal in text_of(made)
    assert "---" not in made
    assert "====" not in made


@pytest.mark.parametrize(
    "text",
    [
        "    indented by four",
        "f(*args, **kwargs) and g(*args, **other)",
        "_private and other_ stay, so does __all__",
        "*.py,*.md and a * b * c",
        "x[i](j) and callbacks[name](self)",
        "[1]: not a reference",
        ">= is no quotation",
        "#hashtag and #1",
        "a <b@c.de> and List<int>",
        "12 - 3",
        "&copy is text",
    ],
)
def test_what_code_comments_hold_is_shown_as_typed(text: str) -> None:
    made = render(text)
    assert Tags(made).tags == ["p"]
    assert text_of(made) == text.strip()


def test_marks_at_both_ends_of_a_line_are_decoration_and_a_diff_is_not() -> None:
    assert render("---- Options ----") == "<p>Options</p>"
    assert text_of(render("======= one two =======")) == "one two"
    assert text_of(render("--- a/file\n+++ b/file")) == "--- a/file\n+++ b/file"
    assert "<table>" in render("a | b | c\n--- | --- | ---\n1 | 2 | 3")


def test_headings_are_two_marks_or_more_with_a_space() -> None:
    made = render("text\n## One ##\nmore\n### Two\n##no", headings=("one", "two"))
    assert made == '<p>text</p>\n<h3 id="one">One</h3>\n<p>more</p>\n<h4 id="two">Two</h4>\n<p>##no</p>'
    assert render("### Two", headings=("two",), level=2) == '<h3 id="two">Two</h3>'


def test_emphasis_by_stars() -> None:
    assert render("*a b* **c *d* e** ***f***") == (
        "<p><em>a b</em> <strong>c <em>d</em> e</strong> <strong><em>f</em></strong></p>"
    )


def test_lists_begin_after_text_and_nest_by_two_spaces() -> None:
    made = render("text\n* a\n* b\n  continued\n  - c\n    1. d\n       $x$\n\nafter\n\n3. three\n4) four\nlazy")
    assert re.sub(r"\s+", "", made) == (
        "<p>text</p><ul><li>a</li><li>bcontinued<ul><li>c<ol><li>d<math>x</math></li></ol></li></ul></li></ul>"
        '<p>after</p><olstart="3"><li>three</li><li>fourlazy</li></ol>'
    )


def test_tables_scroll_inside_a_box_of_their_own() -> None:
    made = render("| a | b |\n|---|---|\n| 1 | 2 |")
    assert made.startswith('<div class="wide"><table>')
    assert Tags(made).tags.count("td") == 2


def test_a_bar_in_an_equation_does_not_split_a_cell() -> None:
    made = render("| a | b |\n|---|---|\n| $|x|$ | `a|b` |")
    assert "<td><math>|x|</math></td>\n<td><code>a|b</code></td>" in made


def test_doctests_and_fences_are_code_with_every_character() -> None:
    made = render(
        "Example:\n\n    >>> x = '*a*'  # $5 <b>\n    >>> x\n    '*a*'\n\n"
        "```py\nif x:\n\n    y = 1\n```\n- a\n  ```\n  b\n  ```"
    )
    assert text_of(made).count(">>> x = '*a*'  # $5 <b>\n>>> x\n'*a*'\n") == 1
    assert "if x:\n\n    y = 1\n" in text_of(made)
    assert Tags(made).tags.count("pre") == 3
    assert "<li>" in made.split("</pre>")[2]


# Japanese.


def test_bold_beside_japanese_punctuation_and_latin_letters() -> None:
    made = render(
        "これは**「重要」**です。これは**終わり。**次の文。Adam**だけ**がAMSGrad**（2018）**と**重要**だ。__重要__は別。"
    )
    assert re.findall("<strong>(.*?)</strong>", made) == ["「重要」", "終わり。", "だけ", "（2018）", "重要"]
    assert "*" not in text_of(made)
    assert "__重要__" in made


def test_a_line_break_beside_japanese_is_no_space() -> None:
    made = render(
        "学習率は\n小さい値です。\nAdam は\nよく使われます。\nlearning\nrate\nは**強い**\n**語**と`x`\nと$y$\nです"
    )
    assert made == (
        "<p>学習率は小さい値です。Adam はよく使われます。learning\nrateは<strong>強い</strong><strong>語</strong>と"
        "<code>x</code>と<math>y</math>です</p>"
    )


def test_a_line_break_inside_code_stays() -> None:
    assert "学\n習" in text_of(render("```\n学\n習\n```"))


def test_anchors_of_a_translation_are_those_of_the_english_text() -> None:
    english, japanese = "## The moment\n\n### Why `m`?", "## モーメント\n\n### なぜ`m`か"
    assert anchors(english) == ["the-moment", "why-m"]
    made = render(japanese, headings=tuple(anchors(english)))
    assert re.findall(r'id="([^"]*)"', made) == ["the-moment", "why-m"]


def test_an_anchor_can_be_fixed_in_a_heading() -> None:
    assert anchors("## One two {#first}\n```\n## no\n```") == ["first"]
    assert render("## One two {#first}", headings=("first",)) == '<h3 id="first">One two</h3>'


# Equations.


def test_a_display_inside_a_paragraph_stands_between_two_paragraphs() -> None:
    made = render(
        "Effective step is,\n$$\\Delta t = \\alpha$$\nThis is bounded by,\n$$\\vert \\Delta t \\vert \\le \\alpha$$"
    )
    assert made == (
        "<p>Effective step is,</p>\n<math display>\\Delta t = \\alpha</math>\n<p>This is bounded by,</p>\n"
        "<math display>\\vert \\Delta t \\vert \\le \\alpha</math>"
    )


def test_an_environment_after_a_text_line_keeps_its_tex(katex: Katex) -> None:
    block = "\\begin{align}\nm_t &\\leftarrow \\beta_1 m_{t-1} \\\\\nv_t &< v_{t-1}\n\\end{align}"
    made = render(f"*Adam* update is,\n{block}\nwhere", katex=katex)
    annotations = re.findall(r"<annotation[^>]*>(.*?)</annotation>", made, re.DOTALL)
    assert [html.unescape(each) for each in annotations] == [block]
    assert made.startswith("<p><em>Adam</em> update is,</p>")
    assert made.endswith("<p>where</p>")


def test_an_equation_that_katex_rejects_names_file_line_and_column(katex: Katex) -> None:
    with pytest.raises(EquationError) as caught:
        render("one\n\ntwo $a$ and $b + \\foo$", katex=katex)
    assert str(caught.value).startswith("page.py:3:18: KaTeX rejects this equation (Undefined control sequence: \\foo)")
    assert (caught.value.line, caught.value.column) == (3, 18)


def test_symbols_are_marked_in_equations_and_code(katex: Katex) -> None:
    symbols = read_symbols("m_t | m, exp_avg | first moment")
    made = render("$m_{t-1}$ and `exp_avg`, not `exp_avg_sq`", katex=katex, symbols=symbols)
    assert made.count('class="enclosing sym y1"') == 1
    assert made.count('<code><span class="sym y1">exp_avg</span></code>') == 1
    assert ">m_{t-1}</annotation>" in made


# Links and figures.


def test_links_go_where_the_site_says_and_addresses_become_links() -> None:
    made = render("[Adam\nhere](adam.md#Adam), [top](#top), see https://arxiv.org/abs/1412.6980. (https://x.y/a_b_(c))")
    links = [value for name, value in Tags(made).attributes if name == "href"]
    assert links == ["../adam.md#Adam", "#top", "https://arxiv.org/abs/1412.6980", "https://x.y/a_b_(c)"]


def test_a_link_that_leads_nowhere_is_text_and_is_reported_with_its_place() -> None:
    known = context(links=lambda target: None)
    markdown = "one\ntwo [Adam](nowhere.md)"
    assert "<a" not in prose.render(markdown, locate(markdown), known)
    assert known.problems == ["page.py:2:12: the link to nowhere.md leads nowhere, so it is shown as text."]


def test_a_figure_is_set_into_the_page_in_its_language_and_opens_large(tmp_path: Path) -> None:
    (tmp_path / "figures").mkdir()
    for language in ("en", "ja"):
        svg = f'<?xml version="1.0"?>\n<!-- made -->\n<svg lang="{language}"><title id="t">T</title></svg>'
        (tmp_path / "figures" / f"grid.{language}.svg").write_text(svg)
    made = render("text\n\n![A *cap* with $x$\nof two lines](figures/grid.svg)", figures_dir=tmp_path / "figures")
    assert made.startswith(
        '<p>text</p>\n<figure><a class="zoom" href="../figures/grid.en.svg" title="Open large"><svg lang="en">'
    )
    assert "<figcaption>A <em>cap</em> with <math>x</math>\nof two lines</figcaption>" in made
    assert "<?xml" not in made
    japanese = render("![図](figures/grid.svg)", figures_dir=tmp_path / "figures", language="ja")
    assert 'href="../figures/grid.ja.svg"' in japanese


def test_a_figure_shown_twice_has_no_id_twice(tmp_path: Path) -> None:
    (tmp_path / "figures").mkdir()
    (tmp_path / "figures" / "a.svg").write_text(
        '<svg aria-labelledby="t"><title id="t">T</title><g id="g"/><use href="#g"/></svg>'
    )
    made = render("![](figures/a.svg)\n\n![](figures/a.svg)", figures_dir=tmp_path / "figures")
    ids = re.findall(r'\bid="([^"]*)"', made)
    assert len(ids) == len(set(ids)) == 4
    assert {*re.findall(r'href="#([^"]*)"', made), *re.findall(r'labelledby="([^"]*)"', made)} <= set(ids)


def test_a_sign_of_a_font_of_icons_in_a_figure_is_no_placeholder(tmp_path: Path) -> None:
    (tmp_path / "figures").mkdir()
    (tmp_path / "figures" / "a.svg").write_text("<svg><text>\ue000</text></svg>", "utf-8")
    assert "<svg><text>\ue000</text></svg>" in render("![$x$](figures/a.svg)", figures_dir=tmp_path / "figures")


def test_a_figure_that_is_not_there_is_an_error_with_its_place(tmp_path: Path) -> None:
    with pytest.raises(
        SourceError, match=r"^page\.py:3:8: there is no figure nothing\.en\.svg or nothing\.svg in .*figures\.$"
    ):
        render("text\n\n![cap](figures/nothing.svg)", figures_dir=tmp_path / "figures")


@pytest.mark.parametrize("way", ["../x.svg", "a/../../x.svg", "/x.svg"])
def test_a_figure_stays_inside_the_folder_of_the_figures(tmp_path: Path, way: str) -> None:
    (tmp_path / "figures" / "a").mkdir(parents=True)
    (tmp_path / "x.svg").write_text("<svg></svg>")
    with pytest.raises(
        SourceError, match=r"^page\.py:1:8: the figure figures/\S+ is not inside .*figures; move it there\.$"
    ):
        render(f"![cap](figures/{way})", figures_dir=tmp_path / "figures")


@pytest.mark.parametrize("content", [b"\x89PNG\r\n\x1a\n\xff", b"words", b""])
def test_a_figure_that_is_no_svg_is_an_error_with_its_place(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "figures").mkdir()
    (tmp_path / "figures" / "a.svg").write_bytes(content)
    with pytest.raises(
        SourceError, match=r"^page\.py:1:8: the figure .*figures/a\.svg is no SVG in UTF-8; save it as one\.$"
    ):
        render("![cap](figures/a.svg)", figures_dir=tmp_path / "figures")


def test_an_image_that_is_no_svg_of_the_folder_is_an_image() -> None:
    made = render("![A & b](photo.png)")
    assert '<figure><img src="../photo.png" alt="A &amp; b" loading="lazy">' in made
    assert '<img alt="x" loading="lazy" src="../y.png">' in render("text ![x](y.png) text")


# Safety.


def test_raw_html_is_shown_as_typed() -> None:
    typed = "<script>alert(1)</script> <img src=x onerror=alert(1)> <!-- c --> <b>x</b>"
    made = render(typed)
    assert Tags(made).tags == ["p"]
    assert text_of(made) == typed
    assert Tags(render(f"| a |\n|---|\n| {typed} |\n\n- {typed}\n\n## {typed}")).tags.count("img") == 0


@pytest.mark.parametrize(
    "target",
    [
        "javascript:alert(1)",
        "JaVaScRiPt:alert(1)",
        "&#106;avascript:alert(1)",
        "java\tscript:alert(1)",
        " javascript:alert(1)",
        "\x01javascript:alert(1)",
        "vbscript:x",
        "data:text/html,<script>",
        "file:///etc/passwd",
        "<javascript:alert(1)>",
    ],
)
def test_unsafe_schemes_lose_their_target(target: str) -> None:
    for markdown in (
        f"[x]({target})",
        f"![x]({target})",
        f"a ![x]({target}) b",
        f"[![x]({target})]({target})",
        f"<{target}>",
    ):
        made = Tags(render(markdown))
        assert not [value for name, value in made.attributes if name in ("href", "src")]
        assert "script" not in made.tags


NASTY = st.lists(
    st.sampled_from(
        [
            "<", ">", '"', "'", "&", "&lt;", "<script>", "</p>", "<!--", "-->", "[x](", "![y](", ")", "javascript:",
            "a.md", "https://x.y/", "`", "``", "```\n", "~~~\n", "$", "$$", "\\", "\\begin{align}", "\\end{align}",
            "*", "**", "_", "# ", "## ", "- ", "1. ", "> ", "| ", "|---|\n", "\n", "\n\n", "    ", "  ", "あ", "。",
            "word", "=", "---\n", ">>> ", "\ue000", "\ue0000\ue001", "\x02", "\x03", "\t", "{#id}", "&#x6a;",
        ]
    ),
    max_size=25,
)  # fmt: skip
ALLOWED = {
    "p", "em", "strong", "code", "pre", "a", "img", "span", "ul", "ol", "li", "blockquote", "h3", "h4", "h5", "h6",
    "table", "thead", "tbody", "tr", "th", "td", "div", "figure", "figcaption", "math",
}  # fmt: skip


@given(NASTY)
@settings(deadline=None, max_examples=400)
def test_no_text_becomes_a_tag_a_script_or_a_placeholder_left_over(parts: list[str]) -> None:
    made = render("".join(parts))
    tags = Tags(made)
    assert set(tags.tags) <= ALLOWED
    assert not tags.open, "a tag is not closed"
    assert {name for name, _ in tags.attributes} <= {
        "href",
        "src",
        "alt",
        "class",
        "id",
        "loading",
        "start",
        "display",
        "title",
    }
    for name, value in tags.attributes:
        assert name not in ("href", "src") or not re.match(r"\s*(?!https?:)[a-z]+:", value or "", re.IGNORECASE)
    assert not re.search("[\x00-\x08\x0b-\x1f\ue000\ue001]|klzzwxh", made)


@given(
    st.lists(
        st.sampled_from(["alpha", "beta", "あ", "漢字", "**b**", "`c`", "$d$", "、", "Adam"]), min_size=1, max_size=12
    )
)
@settings(deadline=None)
def test_joining_lines_changes_white_space_and_nothing_else(words: list[str]) -> None:
    squeezed = [re.sub(r"\s", "", render(joint.join(words))) for joint in ("\n", " ")]
    assert squeezed[0] == squeezed[1]


def test_plain_reads_the_text_and_not_the_tex(katex: Katex) -> None:
    made = render("A *step* of $\\alpha_t$ & `x`\n\n$$\\frac{a}{b}$$", katex=katex)
    assert plain(made) == "A step of αt & x ab"
