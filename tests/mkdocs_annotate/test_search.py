import re
from types import SimpleNamespace

import pytest

from mkdocs_annotate import search

ROWS = """
<section class="row row--def" id="Adam.step"><div class="prose"><a class="hash" href="#Adam.step">#</a><h3>step</h3>
<p>One <em>step</em> of <span class="katex"><span class="katex-mathml"><math><mi>m</mi></math></span><span
class="katex-html"><span>m</span></span></span>, where a &lt; b.</p><p>More.</p></div>
<pre class="code highlight"><code><span class="line" id="L7"><a class="ln" href="#L7">7</a>def step(self):
</span><span class="line" id="L8"><a class="ln" href="#L8">8</a>    return 1
</span></code></pre></section>
<section class="row" id="Adam.step-2"><div class="prose"></div><pre class="code highlight"></pre></section>
"""


def cut(text: str, separator: str) -> list[str]:
    """Cut as Material's script does it: a match of no width cuts, too."""
    words, start = [], 0
    for found in re.finditer(separator, text):
        if start < found.start():
            words.append(text[start : found.start()])
        start = found.end()
    return [*words, text[start:]] if start < len(text) else words


def test_a_row_is_an_entry_under_its_own_anchor_and_an_equation_is_left_out():
    page, row, empty = search.entries("adam/", "Adam", ROWS, "The lede.")
    assert page == {"location": "adam/", "title": "Adam", "text": "<p>The lede.</p>"}
    assert row["location"] == "adam/#Adam.step"
    assert row["title"] == "Adam.step"
    prose = "<p>One step of …, where a &lt; b.</p><p>More.</p>"
    assert row["text"] == prose + "<p><code>def step(self):</code></p><p><code>return 1</code></p>"
    assert empty == {"location": "adam/#Adam.step-2", "title": "Adam.step", "text": ""}


def test_text_that_looks_like_html_stays_text():
    (page, entry) = search.entries("a/", "<b> & co", '<h2 id="x">a &lt; b</h2><p>&lt;script&gt;</p>')
    assert page["title"] == "&lt;b&gt; &amp; co"
    assert entry == {"location": "a/#x", "title": "a &lt; b", "text": "<p>&lt;script&gt;</p>"}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("state['exp_avg']", ["state", "exp_avg"]),
        ("self.step_param(state, group)", ["self", "step_param", "state", "group"]),
        ("bias-corrected, 0.001", ["bias", "corrected", "0.001"]),
    ],
)
def test_words_of_text_and_code(text, words):
    assert cut(text, search.SEPARATOR) == words
    assert cut(text, search.JAPANESE) == words


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("損失スケーリング", ["損失", "スケーリング"]),
        ("損失のスケーリングを、", ["損失", "スケーリング"]),
        ("重み減衰が小さい", ["重み", "減衰", "小さい"]),
        ("FP16の重みで計算する", ["FP16", "重み", "計算"]),
        ("書き換える", ["書き", "換える"]),
        ("「Adam」は、半精度\u200b学習（β）", ["Adam", "半精度", "学習", "β"]),
    ],
)
def test_japanese_words_are_the_same_in_a_query_and_in_a_sentence(text, words):
    assert cut(text, search.JAPANESE) == words


def test_a_compound_is_cut_at_words_that_stand_alone_elsewhere():
    entries = [{"title": "半精度学習率", "text": "<p>半精度、学習率と学習</p>"}, {"title": "二乗平均", "text": ""}]
    search.cut_compounds(entries)
    assert entries == [
        {"title": "半精度\u200b学習率", "text": "<p>半精度、学習率と学習</p>"},
        {"title": "二乗平均", "text": ""},
    ]


def finder(**options):
    config = {"lang": None, "separator": None, "pipeline": None} | options
    return SimpleNamespace(
        config=type("Options", (dict,), {"enabled": True})(config), search_index=SimpleNamespace(entries=[])
    )


def test_what_mkdocs_yml_says_about_the_search_is_kept():
    own = finder(separator=r"\s+")
    search.prepare(own, "ja")
    assert own.config == {"lang": ["en"], "separator": r"\s+", "pipeline": ["stopWordFilter"]}
    other = search.prepare(finder(), "de")
    assert other.config == {"lang": None, "separator": search.SEPARATOR, "pipeline": None}
    assert search.prepare(None, "ja") is None


def test_a_page_can_be_left_out_of_the_search_or_be_raised_in_it():
    one = finder()
    search.add(one, {"search": {"exclude": True}}, [{"location": "a/"}])
    assert one.search_index.entries == []
    meta = {"search": {"boost": 2}}
    search.add(one, meta, [{"location": "b/"}])
    assert one.search_index.entries == [{"location": "b/", "boost": 2}]
    assert meta["search"] == {"exclude": True}, "Material's plugin must not read the page once more"
