"""The checks of Japanese prose: what they find, and what they must leave alone."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mkdocs_annotate import japanese
from mkdocs_annotate.equations import find_node
from mkdocs_annotate.japanese import (
    Finding,
    Glossary,
    GlossaryError,
    Term,
    ToolError,
    forbidden_words,
    headings,
    literal_bold,
    plain_endings,
    style,
    textlint,
    verb_ending,
)
from mkdocs_annotate.spans import TextKind

ROOT = Path(__file__).parents[2]
GLOSSARY = Glossary.load(ROOT / "locale" / "glossary-ja.tsv", ROOT / "locale" / "glossary-ja-exceptions.tsv")
TERMS = [
    line.split("\t") for line in (ROOT / "locale" / "glossary-ja.tsv").read_text(encoding="utf-8").splitlines()[1:]
]


# Glossary


@pytest.mark.parametrize("term", GLOSSARY.terms, ids=lambda term: term.form)
def test_every_forbidden_form_is_found_where_it_is_a_word(term: Term) -> None:
    for text in (f"これは{term.form}です。", f"{term.form}を使います。"):
        assert [finding.offset for finding in forbidden_words(text, Glossary((term,)))] == [text.index(term.form)]


@pytest.mark.parametrize(
    "text",
    [
        "メモリの削減量を測ります。",  # 減量
        "全体重みを更新します。",  # 体重
        "ゲノムやゲノームではありません。",  # ノーム
        "温床にはなりません。",  # 床
        "購買力平価ではなく、再購買力です。",  # 購買
        "オプティマイザとパラメータを渡します。",  # オプティマイザー, パラメーター
        "モーメントとモメンタムは別のものです。",  # モメント, モーメンタム
        "訓練データで学習します。",
        "運動量保存則とは別の話です。",
        "スケジューラを使います。",
        "この瞬間の値です。",
        "スキップします。飛び石ではありません。",  # 飛び越す
    ],
)
def test_a_form_hidden_in_another_word_is_no_finding(text: str) -> None:
    assert forbidden_words(text, GLOSSARY) == []


@pytest.mark.parametrize("row", TERMS, ids=lambda row: row[0])
def test_no_term_of_the_glossary_is_itself_forbidden(row: list[str]) -> None:
    assert forbidden_words(f"{row[1]}を使います。", GLOSSARY) == []


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ("ステップを飛び越します。", "飛び越す"),
        ("ステップを飛び越した場合です。", "飛び越す"),
        ("オプティマイザークラスを使います。", "オプティマイザー"),
        ("バックワードパラメーターの話です。", "パラメーター"),
        ("重みの減量です。", "減量"),
        ("体重を更新します。", "体重"),
    ],
)
def test_an_inflected_or_compounded_form_is_found(text: str, form: str) -> None:
    assert any(f'"{form}"' in finding.message for finding in forbidden_words(text, GLOSSARY))


def test_an_exception_allows_a_form_inside_its_phrase_only(tmp_path: Path) -> None:
    table, exceptions = tmp_path / "glossary.tsv", tmp_path / "exceptions.tsv"
    table.write_text("en\tja\tforbidden\tsource\nmomentum\tモメンタム\t運動量\tx\n", encoding="utf-8")
    exceptions.write_text("form\twithin\treason\n運動量\t運動量保存則\tphysics\n", encoding="utf-8")
    glossary = Glossary.load(table, exceptions)
    assert forbidden_words("運動量保存則のように働きます。", glossary) == []
    assert [finding.offset for finding in forbidden_words("運動量保存則と運動量です。", glossary)] == [7]


@pytest.mark.parametrize(
    ("table", "exceptions", "words"),
    [
        ("en\tja\tforbidden\na\tb\n", "", "glossary.tsv:2: 2 columns"),
        ("en\tja\tforbidden\na\tb\tx||y\n", "", "glossary.tsv:2: an empty form"),
        (
            "en\tja\tforbidden\na\tb\tx\n",
            "form\twithin\treason\nx\txy\t \n",
            "exceptions.tsv:2: an exception needs its reason",
        ),
        (
            "en\tja\tforbidden\na\tb\tx\n",
            "form\twithin\treason\nx\tyz\twhy\n",
            'exceptions.tsv:2: "yz" does not contain "x"',
        ),
    ],
)
def test_a_broken_glossary_is_refused_with_its_line(tmp_path: Path, table: str, exceptions: str, words: str) -> None:
    (tmp_path / "glossary.tsv").write_text(table, encoding="utf-8")
    (tmp_path / "exceptions.tsv").write_text(exceptions or "form\twithin\treason\n", encoding="utf-8")
    with pytest.raises(GlossaryError, match=words.replace("(", r"\(")):
        Glossary.load(tmp_path / "glossary.tsv", tmp_path / "exceptions.tsv")


# Style


@pytest.mark.parametrize(
    ("text", "offset", "words"),
    [
        ("学習率は 0.1です。", 4, "no space"),
        ("XXX を使います。", 3, "no space"),
        ("学習 率です。", 2, "no space"),
        ("値です。 次の文です。", 4, "no space"),
        ("- 学習率は X です。", 6, "no space"),
        ("学習率\u3000です。", 3, "ideographic"),
        ("１０回です。", 0, "digits"),
        ("ＡＢＣです。", 0, "letters"),
        ("小さく，速いです。", 3, "「、」"),
        ("小さいです．", 5, "「、」"),
        ("小さいです.", 5, "「、」"),
        ("値は,小さいです。", 2, "「、」"),
        ("損失スケーリング(loss scaling)です。", 8, "brackets"),
        ("(半精度)です。", 0, "brackets"),
        ("注意:値です。", 2, "full-width"),
        ("10％です。", 2, "signs"),
    ],
)
def test_a_slip_of_style_is_found(text: str, offset: int, words: str) -> None:
    assert any(finding.offset == offset and words in finding.message for finding in style(text)), style(text)


@pytest.mark.parametrize(
    "text",
    [
        "学習率は0.1です。1,000ステップ後に10分の1になります。",
        "損失スケーリング（loss scaling）を使います。",
        "# 学習率\n\n1. 半精度\n2. 単精度\n\n- 学習率\n  - 下限\n\n> 引用です。\n",
        "| 記号 | 意味 |\n|---|---|\n| X | 学習率 |\n",
        "Adam: A Method for Stochastic Optimization（Kingma、Ba、2014年）",
        "torch.amp.GradScaler and others stay as they are (see the page).",
        "PyTorch 2.10以降が必要です。",
        "「値は0である。」という説明は誤りです。",
    ],
)
def test_what_is_written_well_passes(text: str) -> None:
    assert style(text) == []


@pytest.mark.parametrize(
    "text",
    [
        "値は小さくなる。",
        "とても大きい。",
        "学習率が大きくなった。",
        "更新されるからだ。",
        "そうではない。",
        "確認できます。ただし、例外がある。",
    ],
)
def test_a_sentence_in_the_plain_form_is_found(text: str) -> None:
    assert len(plain_endings(text)) == 1


@pytest.mark.parametrize(
    "text",
    [
        "更新します。更新しません。更新しませんでした。",
        "ご覧ください。使いましょう。なぜでしょうか。",
        "速いのです。速いからです。なければなりません。",
        "小さくなるとは限りません。大きいです。",
        "更新の停止。これだけ。",
        "（値は0です。）「値は0である。」と書きます。",
        "正しいですね。よく知られています。",
    ],
)
def test_polite_sentences_and_nouns_pass(text: str) -> None:
    assert plain_endings(text) == []


@pytest.mark.parametrize("text", ["学習を再開する", "半精度で学習します", "重みの更新が消える", "動作が速い"])
def test_a_heading_that_ends_in_a_verb_is_found(text: str) -> None:
    assert len(verb_ending(text)) == 1
    assert [finding.offset for finding in headings(f"文です。\n\n## {text}\n\n文です。", "prose")] == [
        9 + verb_ending(text)[0].offset
    ]


@pytest.mark.parametrize(
    "text",
    [
        "学習の再開",
        "なぜ学習は壊れるのか",
        "丸め",
        "使いどころ",
        "更新の仕組み",
        "Adam",
        "はじめに",
        "1次モーメント（平均）",
    ],
)
def test_a_heading_that_ends_in_a_noun_or_a_question_passes(text: str) -> None:
    assert verb_ending(text) == []


# Bold


@pytest.mark.parametrize(
    ("text", "engines"),
    [
        ("これは**「重要」**です。", "CommonMark"),
        ("これは**終わり。**次の文です。", "CommonMark"),
        ("これは**`lr`**です。", "CommonMark"),
        ("これは**$\\alpha$**です。", "CommonMark"),
        ("これは__重要__です。", "a row, Python-Markdown, CommonMark"),
        ("これは** 重要 **です。", "a row, Python-Markdown, CommonMark"),
        ("2**3**4です。", "a row"),
    ],
)
def test_bold_that_an_engine_shows_as_asterisks_is_found(text: str, engines: str) -> None:
    found = literal_bold(text)
    assert found
    assert all(f"(in {engines})." in finding.message for finding in found)
    assert text[found[0].offset] in "*_"


@pytest.mark.parametrize(
    "text",
    [
        "これは**重要**です。",
        "**注意**：値です。",
        "「**重要**」です。",
        "`**kwargs`と`__init__`です。",
        "$a ** b$と$x_1 __ y$です。",
        "2\\*3と\\_\\_init\\_\\_です。",
        "- **半精度**\n- 単精度\n\n```python\nf(**kwargs)\n```\n",
    ],
)
def test_bold_that_both_engines_show_passes(text: str) -> None:
    assert literal_bold(text) == []


def test_asterisks_that_the_english_shows_too_pass() -> None:
    assert literal_bold("**kwargsを渡します。", "It passes **kwargs on.") == []
    assert literal_bold("**「重要」**です。**kwargsを渡します。", "It passes **kwargs on.")


# textlint


LINTED: list[tuple[str, TextKind]] = [
    ("学習率を小さくすると" + "更新の幅が狭くなって" * 10 + "止まります。", "prose"),
    ("これは文です", "prose"),
    ("𝛼の値です。値です。これはこれはよい値です。", "prose"),
    ("半精度で学習するためのAdam", "heading"),
    ("勾配の移動平均", "item"),
]


@pytest.fixture(scope="module")
def linted() -> list[list[Finding]]:
    """What textlint finds in all texts of this file, in one run."""
    if find_node() is None or not (ROOT / "node_modules" / "textlint").exists():
        assert "CI" not in os.environ, "textlint is not installed (npm ci)"
        pytest.skip("textlint is not installed (npm ci)")
    return textlint([*LINTED, *((row[1], "item") for row in TERMS)], ROOT / ".textlintrc.json", ROOT / "node_modules")


def test_textlint_finds_a_sentence_that_is_too_long(linted: list[list[Finding]]) -> None:
    assert any("sentence-length" in finding.message for finding in linted[0])


def test_textlint_finds_a_missing_full_stop_at_its_place(linted: list[list[Finding]]) -> None:
    assert [finding.offset for finding in linted[1]] == [5]


def test_textlint_places_are_characters_also_after_an_astral_one(linted: list[list[Finding]]) -> None:
    assert [finding.offset for finding in linted[2]] == [15]


def test_textlint_asks_no_full_stop_of_titles_and_phrases(linted: list[list[Finding]]) -> None:
    assert linted[3:5] == [[], []]


def test_textlint_has_nothing_against_the_terms_of_the_glossary(linted: list[list[Finding]]) -> None:
    assert [(row[1], found) for row, found in zip(TERMS, linted[len(LINTED) :], strict=True) if found] == []


def test_textlint_is_not_asked_again_until_a_text_or_a_rule_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def run(texts: list[tuple[str, TextKind]], *_: object) -> list[list[Finding]]:
        asked.extend(text for text, _ in texts)
        return [[Finding(0, f"about {text}")] for text, _ in texts]

    monkeypatch.setattr(japanese, "_run_textlint", run)
    monkeypatch.setattr(japanese, "find_node", lambda: "node")
    config, npm, cache = tmp_path / ".textlintrc.json", tmp_path / "node_modules", tmp_path / ".cache" / "textlint.json"
    (npm / "textlint").mkdir(parents=True)
    config.write_text("{}", encoding="utf-8")
    for texts, expected in ((("a", "b"), ["a", "b"]), (("b", "c"), ["c"]), (("c", "a"), [])):
        asked.clear()
        found = textlint([(text, "prose") for text in texts], config, npm, cache)
        assert found == [[Finding(0, f"about {text}")] for text in texts]
        assert asked == expected
    textlint([("a", "item")], config, npm, cache)
    config.write_text('{"rules": {}}', encoding="utf-8")
    textlint([("a", "item")], config, npm, cache)
    cache.write_text("{", encoding="utf-8")
    textlint([("a", "item")], config, npm, cache)
    assert asked == ["a", "a", "a"]


def test_textlint_that_is_not_installed_is_one_clear_sentence(tmp_path: Path) -> None:
    with pytest.raises(ToolError, match="run `npm ci`"):
        textlint([("文です。", "prose")], tmp_path / ".textlintrc.json", tmp_path / "node_modules")
