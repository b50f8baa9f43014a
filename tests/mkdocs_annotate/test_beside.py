"""Prose without code has the sheet for its figures, tables and examples; nothing is lost, and the order stays."""

import re

import pytest

from mkdocs_annotate.beside import beside, blocks, stamped

TEXT, LIST = "<p>text</p>", "<ul><li>one<br>two</li></ul>"
FIGURE, TABLE = '<figure><a><svg><path d=""/></svg></a></figure>', '<div class="wide"><table></table></div>'
CODE = '<pre class="highlight"><code>x &lt; 1\n\ny</code></pre>'


def shape(html: str) -> list[str]:
    """The pairs as letters: t for text, a for what stands beside it."""
    pairs = re.split(r'<div class="pair[^"]*">', html)[1:]
    return ["".join(kind[0] for kind in re.findall(r'<div class="(text|aside)">', pair)) for pair in pairs]


@pytest.mark.parametrize(
    ("parts", "pairs"),
    [
        ([TEXT, FIGURE], ["ta"]),
        ([FIGURE, TEXT], ["at"]),
        ([TEXT, LIST, TABLE], ["ta"]),
        ([TABLE, TEXT, FIGURE], ["ata"]),
        ([TEXT, FIGURE, TEXT], ["tat"]),
        ([TEXT, FIGURE, CODE, TEXT], ["tat"]),
        ([TEXT, FIGURE, TEXT, CODE], ["ta", "ta"]),
        ([TABLE, TEXT, FIGURE, TEXT], ["ata", "t"]),
        ([FIGURE], ["a"]),
    ],
)
def test_each_figure_stands_beside_the_text_before_it(parts, pairs):
    assert shape(beside("\n".join(parts))) == pairs


@pytest.mark.parametrize("parts", [[TEXT, FIGURE, TEXT, CODE, TABLE, LIST], [TABLE, TEXT, FIGURE, TEXT], [CODE]])
def test_nothing_is_lost_and_the_order_stays(parts):
    made = beside("".join(parts))
    assert re.sub(r'<div class="(?:pair[^"]*|text|aside)">', "", made).replace("</div>", "") == "".join(parts).replace(
        "</div>", ""
    )
    assert made.count("<div") == made.count("</div")


@pytest.mark.parametrize("html", ["", TEXT, TEXT + LIST])
def test_text_alone_stays_as_it_is(html):
    assert beside(html) == html


def test_blocks_are_the_outermost_elements():
    html = f"{TEXT}\n{FIGURE}<hr>{LIST}{CODE}"
    assert "".join(blocks(html)) == html
    assert len(blocks(html)) == 5


def test_the_origin_of_a_figure_moves_into_its_caption():
    made = stamped(
        "<figure><svg><metadata>CPU, seed 0</metadata><path/></svg><figcaption>It falls.</figcaption></figure>"
    )
    assert made == (
        "<figure><svg><path/></svg><figcaption>It falls."
        '<span class="stamp"><span>CPU, seed 0</span></span></figcaption></figure>'
    )


def test_a_figure_without_a_caption_has_its_origin_as_one():
    assert stamped("<figure><svg><metadata>CPU</metadata></svg></figure>").endswith(
        '<figcaption><span class="stamp"><span>CPU</span></span></figcaption></figure>'
    )


def test_what_says_nothing_of_its_origin_stays_as_it_is():
    # matplotlib writes such
    rdf = "<figure><svg><metadata>\n <rdf:RDF><dc:date>2026</dc:date></rdf:RDF>\n</metadata></svg></figure>"
    for html in (FIGURE + TEXT, rdf):
        assert stamped(html) == html
