"""Hand-written pages follow the rules of annotated ones where Markdown itself doesn't."""

import pytest

from mkdocs_annotate.equations import Katex, TexError
from mkdocs_annotate.handwritten import read


class FakeKatex(Katex):
    """Sets an equation as its TeX, and rejects `\\bad`."""

    def render(self, tex, display, tagged=None):
        if r"\bad" in tex:
            raise TexError("Undefined control sequence: \\bad.", tex.index(r"\bad"))
        return f"<i>{tex}</i>"


@pytest.fixture
def katex(tmp_path):
    return FakeKatex(tmp_path)


def test_equations_go_around_markdown(katex):
    page = read("The rate $a_t$ and `$5`.", "The rate $a_t$ and `$5`.", "docs/page.md")
    assert "a_t" not in page.markdown
    assert "`$5`" in page.markdown
    said = []
    assert page.with_equations(f"<p>{page.markdown}</p>", katex, said.append) == "<p>The rate <i>a_t</i> and `$5`.</p>"
    assert not said


@pytest.mark.parametrize("front", ["", "---\ntitle: A page\n---\n\n"])
def test_a_rejected_equation_is_said_with_its_place_in_the_file(katex, front):
    markdown = "One.\n\nTwo $x + \\bad$.\n"
    page = read(markdown, front + markdown, "docs/page.md")
    said = []
    made = page.with_equations(f"<p>{page.markdown}</p>", katex, said.append)
    (message,) = said
    line = (front + markdown)[: (front + markdown).index("Two")].count("\n") + 1
    assert message.startswith(f"docs/page.md:{line}:10: ")
    assert "Undefined control sequence" in message
    assert "<code>x + \\bad</code>" in made


def test_a_line_break_beside_japanese_leaves_no_space(katex):
    """On hand-written pages."""
    html = "<p>学習率は\n小さい値です。\nAdam は\nよく使われます。two\nwords</p>"
    page = read("", "", "docs/page.ja.md")
    made = page.with_equations(html, katex, print)
    assert made == "<p>学習率は小さい値です。Adam はよく使われます。two\nwords</p>"


def test_a_line_break_of_code_stays(katex):
    html = "<pre><code># 学習率\n# は\n数 = 1\n値 = 2</code></pre>"
    assert read("", "", "docs/page.ja.md").with_equations(html, katex, print) == html


def test_a_page_on_another_drive_is_named_by_its_whole_path(monkeypatch):
    def relpath(path, start):
        raise ValueError("path is on mount 'D:', start on mount 'C:'")

    monkeypatch.setattr("os.path.relpath", relpath)  # as it is on Windows
    assert read("text", "text", "/d/page.md").path == "/d/page.md"
