import pytest

from mkdocs_annotate.unbroken import unbroken

FORMULA = '<span class="katex"><span class="katex-html"><span>m</span></span></span>'


@pytest.mark.parametrize(
    "piece", [FORMULA, "<code>lr</code>", '<a href="x"><code>lr</code></a>', "<code><span>lr</span></code>"]
)
@pytest.mark.parametrize("mark", ["、", "。", "）。"])
def test_a_piece_stays_with_the_mark_after_it(piece, mark):
    assert unbroken(f"<p>前{piece}{mark}後</p>") == f'<p>前<span class="unbroken">{piece}{mark}</span>後</p>'


@pytest.mark.parametrize(
    "html",
    [
        "<p>前、後</p>",
        f"<p>{FORMULA}は{FORMULA}, then</p>",
        f"<p><code>{'x' * 31}</code>、</p>",
        "<p></a>、</code>、<code>、</p>",
        '<p><a href="x">語</a>、<span class="sym">語</span>。</p>',
    ],
)
def test_all_else_stays_as_it_is(html):
    assert unbroken(html) == html


def test_several_pieces_of_a_text():
    made = unbroken(f"<p>{FORMULA}、<code>a</code>と<code>b</code>。</p>")
    kept = f'<span class="unbroken">{FORMULA}、</span><code>a</code>と<span class="unbroken"><code>b</code>。</span>'
    assert made == f"<p>{kept}</p>"
