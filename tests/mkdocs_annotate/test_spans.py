"""What in a Markdown text is not prose, and what must be the same in two languages."""

from __future__ import annotations

import pytest

from mkdocs_annotate.spans import differences, prose, spans


def found(markdown: str) -> list[tuple[str, str]]:
    return [(span.kind, span.value) for span in spans(markdown) if span.kind != "html"]


def test_code_links_images_and_addresses_are_found() -> None:
    text = (
        'See `lr` and ``a`b``, [the *page*](adam.md#Adam "Title"), ![a [b] c](figures/a.svg) and <https://x.org/y>.\n\n'
        "```python\nx = 1  # $5\n```\n\n[ref]: https://example.org/z\n"
    )
    assert found(text) == [
        ("code", "lr"),
        ("code", "a`b"),
        ("link", "adam.md#Adam"),
        ("image", "figures/a.svg"),
        ("address", "https://x.org/y"),
        ("block", "python\nx = 1  # $5"),
        ("link", "https://example.org/z"),
    ]


def test_formulas_are_found_outside_code() -> None:
    text = "With $\\beta_1 = 0.9$ and `$x$`:\n\n$$m_t = a_b$$\n\n```\n$no$\n```\n"
    assert found(text) == [
        ("formula", "\\beta_1 = 0.9"),
        ("code", "$x$"),
        ("display", "m_t = a_b"),
        ("block", "$no$"),
    ]


def test_an_image_inside_a_link_is_found() -> None:
    assert found("[![badge](b.svg)](https://ci.org/x)") == [("link", "https://ci.org/x"), ("image", "b.svg")]


@pytest.mark.parametrize(
    ("english", "japanese"),
    [
        ("Set `lr` to $\\alpha$.", "$\\alpha$を`lr`に設定します。"),
        ("$m_t$ is small, and $v_t$ too.", "$m_t$も$v_t$も小さく、$m_t$は0に近い値です。"),
        ("See [Adam](adam.md).", "[Adam](adam.md)を参照してください。"),
        ("It takes 1,000 steps and 65504.", "1000ステップかかり、65,504です。"),
        ("## The rate\n\nText.", "## 学習率\n\n文です。"),
        ("A thousand steps.", "1,000ステップです。"),
        ("Line\nbreak in `a\nb`.", "`a b`での改行です。"),
    ],
)
def test_a_faithful_translation_has_no_differences(english: str, japanese: str) -> None:
    assert differences(english, japanese) == []


@pytest.mark.parametrize(
    ("english", "japanese", "words"),
    [
        ("With $\\beta_1$.", "$\\beta_2$です。", "formula \\beta_1 of the English text is missing"),
        ("With $\\beta_1$.", "$\\beta_1$と$\\beta_2$です。", "formula \\beta_2 is not in the English text"),
        ("$$a = b$$", "式です。", "equation a = b of the English text is missing"),
        ("$$a = b$$", "$$a = b$$\n\n$$a = b$$", "stands 2 times, in the English text 1 times"),
        ("Set `lr`.", "`学習率`を設定します。", "code lr of the English text is missing"),
        ("See [Adam](adam.md).", "[Adam](adam.ja.md)です。", "link to adam.md of the English text is missing"),
        ("![a](figures/a.svg)", "![図です。](figures/b.svg)", "image figures/a.svg of the English text is missing"),
        ("<https://arxiv.org/abs/1412.6980>", "論文です。", "address https://arxiv.org/abs/1412.6980"),
        ("Largest is 65504.", "最大は65505です。", "number 65504 of the English text is missing"),
        ("## A\n\nText.", "文です。", "the headings are none, in the English text ##"),
        ("```\nx = 1\n```", "```\nx = 2\n```", "code block"),
    ],
)
def test_a_difference_is_named(english: str, japanese: str, words: str) -> None:
    messages = [finding.message for finding in differences(english, japanese)]
    assert any(words in message for message in messages), messages


def test_a_difference_has_its_place() -> None:
    text = "一行目です。\n\n二行目の`rl`です。"
    assert [finding.offset for finding in differences("See `lr`.", text)] == [0, text.index("`rl`")]


def test_prose_has_letters_where_code_and_formulas_were() -> None:
    assert prose("**学習率**の`lr`は$\\alpha_0$です。").text == "学習率のXXはXXです。"
    assert prose("[Adam](adam.md)と*重要*な\\*印").text == "Adamと重要な*印"
    assert prose("*m*は*g*の平均").text == "XはXの平均"
    assert prose("次の式です。\n\n$$\nx\n$$\n\nここで").text.split() == ["次の式です。", "ここで"]


def test_lines_of_a_paragraph_are_joined_and_blocks_are_not() -> None:
    assert prose("学習率は\n小さい値です。\nAdam\nは").text == "学習率は小さい値です。Adamは"
    assert prose("two\nwords").text == "two words"
    assert prose("`error`\n:   原因です。").text == "XXXXX\n\n:   原因です。"
    assert prose("# 学習率\n本文\n\n- 一つ\n- 二つ\n  続き\n\n| a |\n| b |").text == (
        "# 学習率\n本文\n\n- 一つ\n- 二つ続き\n\n| a |\n| b |"
    )


def test_each_character_of_the_prose_knows_its_place() -> None:
    markdown = "前置き`code`です。\n**太字**と[リンク](x.md)と$\\frac{1}{2}$の値。"
    made = prose(markdown)
    for word in ("前置き", "です", "太字", "リンク", "の値"):
        assert made.origins[made.text.index(word)] == markdown.index(word)
    assert len(made.origins) == len(made.text) + 1
