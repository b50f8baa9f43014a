"""The head of a page: what others show of it."""

from __future__ import annotations

import pytest

from mkdocs_annotate.heads import shorten


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("It  fits.", "It fits."),
        ("A sentence of more than sixty characters, which is shown whole and alone. " + "word " * 40, "alone."),
        ("A naïve text, " + "and on it goes, " * 20, "and on it goes,…"),
        ("words " * 26 + "estimation", "words words…"),
        ("日本語の文には区切りの空白がない" * 20, "区切りの空白がな…"),
    ],
)
def test_a_description_ends_at_a_sentence_or_a_word_in_any_script(text: str, shown: str) -> None:
    made = shorten(text)
    assert made.endswith(shown)
    assert len(made) <= 160
