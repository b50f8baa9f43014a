"""The head of a page: which part of a docstring is what, and that nothing of it is lost."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from mkdocs_annotate.head import Head, Part, read_head

DOCSTRING = r"""# Adam

Two running averages,
and a step.

Papers: [Adam](https://arxiv.org/abs/1412.6980), 2014

$$\theta_t = \theta_{t-1}
- \alpha$$

**Use it when** gradients differ.

**Don't when** parameters are FP16.

![A mean that
starts at 0](figures/adam.svg)

```symbols
m_t | m | first moment

v_t | v | second moment
```

Some text before a heading.

## Why
$$x$$

![second](figures/two.svg)

```python
## no heading

x = 1
```
## How
text
"""


def parts(head: Head) -> list[Part]:
    return [part for part in (*list(vars(head).values())[:-1], *head.body) if part]


def test_every_piece_is_found() -> None:
    head = read_head(DOCSTRING)
    assert head.title.text == "Adam"
    assert head.lede.text == "Two running averages,\nand a step."
    assert head.paper.text == "Papers: [Adam](https://arxiv.org/abs/1412.6980), 2014"
    assert head.rule.text == "$$\\theta_t = \\theta_{t-1}\n- \\alpha$$"
    assert head.use.text == "gradients differ."
    assert head.dont.text == "parameters are FP16."
    assert (head.figure.text, head.figure_target.text) == ("A mean that\nstarts at 0", "figures/adam.svg")
    assert head.symbols.text == "m_t | m | first moment\n\nv_t | v | second moment\n"
    assert [part.text.split("\n")[0] for part in head.body] == ["Some text before a heading.", "## Why", "## How"]
    assert "second" in head.body[1].text
    assert "## no heading" in head.body[1].text


def test_every_piece_knows_where_it_stands() -> None:
    for part in parts(read_head(DOCSTRING)):
        assert DOCSTRING[part.start : part.start + len(part.text)] == part.text


def test_a_docstring_without_a_title_has_a_lede_and_a_body() -> None:
    head = read_head("Command-line parsing library\n\nThis module\nis old.\n\n    - item")
    assert (head.title.text, head.lede.text) == ("", "Command-line parsing library")
    assert [part.text for part in head.body] == ["This module\nis old.\n\n    - item"]


def test_a_list_or_an_example_is_no_lede() -> None:
    for text in ("- item\n- item", ">>> x\n1", "```\ncode\n```", "## Heading\ntext"):
        head = read_head(text)
        assert not head.lede
        assert [part.text for part in head.body] == [text]


def test_a_paragraph_after_a_list_or_an_example_stays_after_it() -> None:
    for text in ("- item\n- item", ">>> x\n1", "```\ncode\n```"):
        head = read_head(f"# T\n\n{text}\n\nThis explains it.")
        assert not head.lede
        assert [part.text for part in head.body] == [f"{text}\n\nThis explains it."]


def test_pieces_after_the_first_heading_stay_in_the_text() -> None:
    head = read_head(
        "# T\n\nLede.\n\n## One\n\nPaper: not in the head\n\n**Use it when** here.\n\n$$y$$\n\n![c](a.svg)"
    )
    assert not any((head.paper, head.use, head.rule, head.figure_target))
    assert head.body[0].text.endswith("![c](a.svg)")


def test_text_of_the_body_on_both_sides_of_a_head_piece_keeps_its_place() -> None:
    docstring = "# T\n\nLede.\n\nBody one.\n\nPaper: p\n\nBody two $x$."
    (part,) = read_head(docstring).body
    assert part.text == "Body one.\n\nBody two $x$."
    assert part.origin(part.text.index("$x$")) == docstring.index("$x$")
    assert part.origin(part.text.index("one")) == docstring.index("one")


@given(st.lists(st.sampled_from(
    [
        "# T", "text", "text\nmore", "Paper: p", "$$x$$", "**Use it when** u", "**Don't when** d", "![c](a.svg)",
        "```symbols\na | b | c\n```", "## H", "## H\ntext", "```\n\n## x\n```", "- a\n- b", ">>> 1\n1",
        "\\begin{align}\n\nx\n\\end{align}",
    ]
), max_size=10))  # fmt: skip
@settings(deadline=None)
def test_every_word_is_in_exactly_one_piece(blocks: list[str]) -> None:
    docstring = "\n\n".join(blocks)
    found = parts(read_head(docstring))
    spans = sorted((part.start, part.start + len(part.text)) for part in found)
    for part in found:
        for number, character in enumerate(part.text):
            assert character.isspace() or docstring[part.origin(number)] == character
    words = sum(not character.isspace() for part in found for character in part.text)
    marks = ("# T", "**Use it when**", "**Don't when**", "![](", ")", "```symbols", "```")
    left_out = sum(len(mark.replace(" ", "")) for mark in marks)
    assert words <= sum(not character.isspace() for character in docstring)
    assert words + left_out >= sum(not character.isspace() for character in docstring)
    assert spans == sorted(set(spans))
