"""Code: byte for byte the source, whatever is marked in it."""

from __future__ import annotations

import html
import re
from html.parser import HTMLParser
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from mkdocs_annotate.code import fence, highlight
from mkdocs_annotate.rows import read_rows, read_source

PACKAGE = Path(__file__).resolve().parents[2] / "mkdocs_annotate"


class Lines(HTMLParser):
    """What a browser shows as lines of code: their numbers, their text without the numbers, and the tags."""

    def __init__(self, made: str) -> None:
        super().__init__(convert_charrefs=True)
        self.numbers: list[str] = []
        self.parts: list[str] = []
        self.tags: set[tuple[str, str]] = set()
        self.in_number = False
        self.depth = 0
        self.feed(made)
        assert self.depth == 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        known = {name: value or "" for name, value in attrs}
        self.tags.add((tag, known.get("class", "")))
        self.in_number = known.get("class") == "ln"
        self.depth += 1

    def handle_endtag(self, tag: str) -> None:
        self.in_number = False
        self.depth -= 1

    def handle_data(self, data: str) -> None:
        (self.numbers if self.in_number else self.parts).append(data)

    @property
    def text(self) -> str:
        return "".join(self.parts)


def shown(code: list[str], **marks: dict) -> Lines:
    return Lines(highlight(code, range(1, len(code) + 1), **marks))


def test_lines_are_numbered_and_can_be_linked() -> None:
    assert highlight(["x = 1", ""], [19, 23]) == (
        '<span class="line" id="L19"><a class="ln" href="#L19" tabindex="-1">19</a>'
        'x = <span class="mi">1</span>\n</span>'
        '<span class="line" id="L23"><a class="ln" href="#L23" tabindex="-1">23</a>\n</span>'
    )


def test_a_string_that_closes_tags_is_escaped() -> None:
    code = ['s = "</pre><script>alert(2)</script>" # </span> &amp;']
    lines = shown(code)
    assert lines.text == code[0] + "\n"
    assert {tag for tag, _ in lines.tags} == {"span", "a"}


def test_symbols_are_marked_as_names_and_as_whole_strings() -> None:
    made = highlight(
        ['m = state["exp_avg"] + exp_avg_sq  # m', 'x = "the exp_avg of m"'], [1, 2], {"m": 2, "exp_avg": 2}
    )
    assert re.findall(r'<span class="sym y2">(\w+)</span>', made) == ["m", "exp_avg"]


def test_imported_names_lead_to_their_page() -> None:
    made = highlight(["class A(Adam): x = 'Adam'"], [1], links={"Adam": "../adam/#Adam"})
    assert made.count('<a class="ref" href="../adam/#Adam">Adam</a>') == 1


def test_code_of_every_module_of_the_engine_is_shown_byte_for_byte() -> None:
    for path in sorted(PACKAGE.glob("*.py")):
        for row in read_rows(read_source(path), path.name):
            lines = Lines(highlight(row.code, row.numbers, {"self": 1, "path": 2}, {"Path": "x"}))
            assert lines.text == "".join(f"{line}\n" for line in row.code)
            assert lines.numbers == [str(number) for number in row.numbers]


@given(st.lists(st.text(alphabet="ab \"'#\\{}()[]<>&\t=:fr1あ\x0c\u2028", max_size=12), max_size=6))
@settings(deadline=None)
def test_any_text_is_shown_byte_for_byte(code: list[str]) -> None:
    assert shown(code, slots={"a": 1}, links={"b": "x"}).text == "".join(f"{line}\n" for line in code)


@given(
    st.text(alphabet="ab \"'#\\{}<>&\n$>. 1", max_size=40),
    st.sampled_from(["", "python", "pycon", "sh", "no such", "json"]),
)
@settings(deadline=None)
def test_blocks_of_code_in_prose_are_shown_byte_for_byte(text: str, language: str) -> None:
    made = fence(text, language)
    inner = re.fullmatch(r'<pre class="highlight"><code>(.*)</code></pre>', made, re.DOTALL)
    assert inner
    assert html.unescape(re.sub(r"<[^>]*>", "", inner[1])) == text.rstrip("\n") + "\n"
