"""Catalogues: reading, state of an entry, following the source, bytes."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from babel.messages.pofile import read_po
from hypothesis import given, settings
from hypothesis import strategies as st

from mkdocs_annotate.catalogue import Catalogue, CatalogueError, Entry, Message, update

HEADER = 'msgid ""\nmsgstr "Language: ja\\n"\n\n'

TEXT = st.text(st.one_of(st.sampled_from('\\"$\n\t\r%{}#~ abαあ「。\x0b\x0c\x85\u2028'), st.characters(codec="utf-8")))
FILLED = TEXT.filter(lambda text: text.strip() != "")


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def translate(path: Path, context: str, text: str) -> None:
    """Type a translation into the file, as a translator does."""
    lines = path.read_text(encoding="utf-8").split("\n")
    start = lines.index(f'msgctxt "{context}"')
    place = next(k for k in range(start, len(lines)) if lines[k].startswith("msgstr"))
    lines[place] = f'msgstr "{text}"'
    path.write_text("\n".join(lines), encoding="utf-8")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "locale" / "ja" / "adam.po"


def test_a_text_is_translated_only_if_its_english_is_the_same(path: Path) -> None:
    write(path, HEADER + 'msgctxt "adam:module"\nmsgid "Rate"\nmsgstr "学習率"\n')
    catalogue = Catalogue.load(path)
    assert catalogue.lookup("adam:module", "Rate") == Entry("学習率", "ok")
    assert catalogue.lookup("adam:module", "A rate") == Entry("A rate", "stale")
    assert catalogue.lookup("adam:other", "Rate") == Entry("Rate", "missing")


def test_a_fuzzy_entry_shows_the_english(path: Path) -> None:
    write(path, HEADER + '#, fuzzy, no-wrap\nmsgctxt "adam:module"\nmsgid "Rate"\nmsgstr "学習率"\n')
    assert Catalogue.load(path).lookup("adam:module", "Rate") == Entry("Rate", "fuzzy")


def test_an_empty_or_blank_translation_is_missing(path: Path) -> None:
    write(path, HEADER + 'msgctxt "p:a"\nmsgid "Rate"\nmsgstr ""\n\nmsgctxt "p:b"\nmsgid "Rate"\nmsgstr " \\n"\n')
    catalogue = Catalogue.load(path)
    assert catalogue.lookup("p:a", "Rate").state == catalogue.lookup("p:b", "Rate").state == "missing"


def test_a_catalogue_that_does_not_exist_is_an_empty_one(path: Path) -> None:
    assert Catalogue.load(path).lookup("adam:module", "Rate") == Entry("Rate", "missing")


def test_an_obsolete_entry_is_not_shown(path: Path) -> None:
    write(path, HEADER + '#~ msgctxt "p:a"\n#~ msgid "Rate"\n#~ msgstr "学習率"\n')
    assert Catalogue.load(path).lookup("p:a", "Rate").state == "missing"


@settings(max_examples=300, deadline=None)
@given(texts=st.lists(st.tuples(FILLED, TEXT), max_size=4))
def test_every_text_comes_back_byte_for_byte(
    tmp_path_factory: pytest.TempPathFactory, texts: list[tuple[str, str]]
) -> None:
    path = tmp_path_factory.mktemp("locale") / "ja" / "page.po"
    messages = [Message(f"page:row-{k}", english) for k, (english, _) in enumerate(texts)]
    update(path, messages)
    catalogue = Catalogue.load(path)
    for item, (_, japanese) in zip(catalogue, texts, strict=False):
        item.msgstr = japanese
    if not texts:
        assert not path.exists()
        return
    catalogue.save()
    again = Catalogue.load(path)
    assert [(item.context, item.msgid, item.msgstr) for item in again] == [
        (f"page:row-{k}", english, japanese) for k, (english, japanese) in enumerate(texts)
    ]
    before = path.read_bytes()
    assert update(path, messages) is False
    assert path.read_bytes() == before


@settings(max_examples=100, deadline=None)
@given(english=FILLED)
def test_babel_reads_the_same_text(tmp_path_factory: pytest.TempPathFactory, english: str) -> None:
    path = tmp_path_factory.mktemp("locale") / "ja" / "page.po"
    update(path, [Message("page:row", english)])
    catalog = read_po(io.BytesIO(path.read_bytes()), abort_invalid=True)
    assert [message.id for message in catalog if message.id] == [english]


def test_update_writes_the_texts_in_the_order_of_the_source(path: Path) -> None:
    messages = [Message("adam#title", "Adam", "labml_opt/adam.py:2"), Message("adam:module", "$\\beta$\n\nline two")]
    assert update(path, messages)
    assert path.read_text(encoding="utf-8") == (
        'msgid ""\nmsgstr ""\n"Language: ja\\n"\n"MIME-Version: 1.0\\n"\n'
        '"Content-Type: text/plain; charset=UTF-8\\n"\n"Content-Transfer-Encoding: 8bit\\n"\n'
        '\n#: labml_opt/adam.py\nmsgctxt "adam#title"\nmsgid "Adam"\nmsgstr ""\n'
        '\nmsgctxt "adam:module"\nmsgid ""\n"$\\\\beta$\\n"\n"\\n"\n"line two"\nmsgstr ""\n'
    )


def test_a_second_update_changes_nothing(path: Path) -> None:
    messages = [Message("p:a", "One"), Message("p:b", "Two")]
    assert update(path, messages)
    translate(path, "p:a", "一")
    before = path.read_bytes()
    assert not update(path, messages)
    assert path.read_bytes() == before


def test_a_changed_text_keeps_its_old_translation_as_fuzzy_with_the_old_english(path: Path) -> None:
    update(path, [Message("p:a", "The rate is small.")])
    translate(path, "p:a", "学習率は小さいです。")
    update(path, [Message("p:a", "The rate is very small.")])
    assert '#, fuzzy\n#| msgid "The rate is small."\nmsgctxt "p:a"\n' in path.read_text(encoding="utf-8")
    assert Catalogue.load(path).lookup("p:a", "The rate is very small.").state == "fuzzy"
    update(path, [Message("p:a", "The rate is tiny.")])
    item = Catalogue.load(path).item("p:a", "The rate is tiny.")
    assert item is not None
    assert (item.previous, item.msgstr) == ("The rate is small.", "学習率は小さいです。")


def test_an_accepted_fuzzy_entry_forgets_the_old_english(path: Path) -> None:
    update(path, [Message("p:a", "The rate is small.")])
    translate(path, "p:a", "学習率は小さいです。")
    update(path, [Message("p:a", "The rate is tiny.")])
    path.write_text(path.read_text(encoding="utf-8").replace("#, fuzzy\n", ""), encoding="utf-8")
    update(path, [Message("p:a", "The rate is tiny.")])
    assert "#|" not in path.read_text(encoding="utf-8")
    assert Catalogue.load(path).lookup("p:a", "The rate is tiny.") == Entry("学習率は小さいです。", "ok")


def test_a_text_that_moves_takes_its_translation_along(path: Path) -> None:
    update(path, [Message("f:f", "First."), Message("f:f-2", "Second.")])
    translate(path, "f:f", "一つ目です。")
    translate(path, "f:f-2", "二つ目です。")
    update(path, [Message("f:f", "First."), Message("f:f-2", "Something wholly new"), Message("f:f-3", "Second.")])
    catalogue = Catalogue.load(path)
    assert catalogue.lookup("f:f-3", "Second.") == Entry("二つ目です。", "ok")
    assert catalogue.lookup("f:f-2", "Something wholly new").state == "missing"


def test_a_text_that_moves_and_changes_is_found_by_likeness(path: Path) -> None:
    update(path, [Message("f:f", "The moments are kept in FP32."), Message("f:f-2", "Bias correction divides.")])
    translate(path, "f:f", "モーメントはFP32で保持します。")
    update(path, [Message("f:f", "Whatever comes now?"), Message("f:f-2", "The moments are always kept in FP32.")])
    item = Catalogue.load(path).item("f:f-2", "The moments are always kept in FP32.")
    assert item is not None
    assert item.fuzzy
    assert item.msgstr == "モーメントはFP32で保持します。"


def test_a_text_that_is_gone_stays_as_obsolete_and_comes_back_with_its_text(path: Path) -> None:
    update(path, [Message("p:a", "One"), Message("p:b", "Two")])
    translate(path, "p:b", "二")
    update(path, [Message("p:a", "One")])
    assert '#~ msgctxt "p:b"\n#~ msgid "Two"\n#~ msgstr "二"\n' in path.read_text(encoding="utf-8")
    update(path, [Message("p:a", "One"), Message("p:b", "Two")])
    assert Catalogue.load(path).lookup("p:b", "Two") == Entry("二", "ok")
    assert "#~" not in path.read_text(encoding="utf-8")


def test_no_translation_is_ever_lost_by_an_update(path: Path) -> None:
    update(path, [Message(f"f:f-{k}", f"Sentence number {k} stands here.") for k in range(6)])
    for k in range(6):
        translate(path, f"f:f-{k}", f"文{k}")
    update(path, [Message("f:f-0", "Sentence number 9 stands here."), Message("f:f-7", "Else"), Message("f:f-1", "z")])
    text = path.read_text(encoding="utf-8")
    assert [text.count(f'"文{k}"') for k in range(6)] == [1] * 6


SENTENCES = st.lists(st.sampled_from("abcdefgh"), unique=True, max_size=6)


@settings(max_examples=200, deadline=None)
@given(versions=st.lists(st.tuples(SENTENCES, st.integers(0, 3)), min_size=2, max_size=4))
def test_whatever_changes_no_translation_is_lost_and_none_is_shown_for_another_text(
    tmp_path_factory: pytest.TempPathFactory, versions: list[tuple[list[str], int]]
) -> None:
    path = tmp_path_factory.mktemp("locale") / "ja" / "page.po"
    written = set()
    for number, (letters, edit) in enumerate(versions):
        texts = [f"Sentence {letter * 9} stands here{'!' * edit}" for letter in letters]
        messages = [Message(f"page:f-{k}", text) for k, text in enumerate(texts)]
        update(path, messages)
        assert not update(path, messages)
        catalogue = Catalogue.load(path)
        for message in messages:
            entry = catalogue.lookup(*message.key)
            assert entry.state != "stale"
            if entry.state == "ok":
                assert entry.text.startswith(f"«{message.text}»")
        for item in catalogue:
            if not item.translated:
                item.msgstr = f"«{item.msgid}» {number}"
                written.add(item.msgstr)
        catalogue.save()
        assert written <= {item.msgstr for item in Catalogue.load(path).items}


def test_what_people_write_beside_an_entry_stays(path: Path) -> None:
    header = '# Adam in Japanese.\nmsgid ""\nmsgstr ""\n"Language: ja\\n"\n"Last-Translator: Someone\\n"\n\n'
    write(
        path, header + '# Checked against the paper.\n#: adam.py\n#, no-wrap\nmsgctxt "p:a"\nmsgid "One"\nmsgstr "一"\n'
    )
    before = path.read_bytes()
    assert not Catalogue.load(path).save()
    assert not update(path, [Message("p:a", "One", "adam.py:3")])
    assert path.read_bytes() == before


def test_one_text_twice_at_one_place_is_refused(path: Path) -> None:
    with pytest.raises(ValueError, match='twice at the place "p:a"'):
        update(path, [Message("p:a", "One"), Message("p:a", "One")])


BROKEN = {
    "unterminated": ('msgctxt "p:a"\nmsgid "x\nmsgstr ""\n', 5, "between two quotes"),
    "bare quote": ('msgctxt "p:a"\nmsgid "say "x""\nmsgstr ""\n', 5, "between two quotes"),
    "tex with one backslash": ('msgctxt "p:a"\nmsgid "x"\nmsgstr "$\\beta$"\n', 6, "two backslashes"),
    "no msgstr": ('msgctxt "p:a"\nmsgid "x"\n\nmsgctxt "p:b"\nmsgid "y"\nmsgstr ""\n', 7, "msgctxt comes too late"),
    "no msgstr at the end": ('msgctxt "p:a"\nmsgid "x"\n', 6, "no msgstr"),
    "no msgid": ('msgctxt "p:a"\nmsgstr "x"\n', 5, "no msgid"),
    "no context": ('msgid "x"\nmsgstr "y"\n', 4, "no msgctxt"),
    "same text twice": ('msgctxt "p:a"\nmsgid "x"\nmsgstr ""\n\nmsgctxt "p:a"\nmsgid "x"\nmsgstr ""\n', 9, "line 5"),
    "plural": ('msgctxt "p:a"\nmsgid "x"\nmsgid_plural "y"\nmsgstr[0] ""\n', 6, "plural"),
    "merge conflict": ('<<<<<<< HEAD\nmsgctxt "p:a"\nmsgid "x"\nmsgstr ""\n', 4, "merge conflict"),
    "stray text": ('"x"\n', 4, "continues nothing"),
    "not gettext": ("Hello\n", 4, "is not known here"),
    "half obsolete": ('#~ msgctxt "p:a"\nmsgid "x"\nmsgstr ""\n', 5, "mark all or none"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_catalogue_is_refused_with_its_line(path: Path, case: str) -> None:
    text, line, words = BROKEN[case]
    write(path, HEADER + text)
    with pytest.raises(CatalogueError, match=words) as caught:
        Catalogue.load(path)
    assert caught.value.line == line
    assert str(caught.value).startswith(f"{path.as_posix()}:{line}: ")
    assert "\n" not in str(caught.value)


def test_a_catalogue_that_is_not_utf8_is_refused_with_its_line(path: Path) -> None:
    path.parent.mkdir(parents=True)
    path.write_bytes(HEADER.encode() + 'msgctxt "p:a"\nmsgid "x"\nmsgstr "学習率"\n'.encode("shift_jis"))
    with pytest.raises(CatalogueError, match="not UTF-8") as caught:
        Catalogue.load(path)
    assert caught.value.line == 6


def test_a_broken_catalogue_is_never_overwritten(path: Path) -> None:
    write(path, HEADER + 'msgctxt "p:a"\nmsgid "x\n')
    before = path.read_bytes()
    with pytest.raises(CatalogueError):
        update(path, [Message("p:a", "x")])
    assert path.read_bytes() == before


FROM_AN_EDITOR = r"""# Someone
msgid ""
msgstr ""
"Language: ja\n"

#. note
#: a.py:3 a.py:9
#, fuzzy
#| msgctxt "old"
#| msgid "Old "
#| "text"
msgctxt "p:a"
msgid ""
"New "
"text"
msgstr ""
"新しい"
"文"

#, fuzzy
#~| msgid "was"
#~ msgctxt "p:b"
#~ msgid "is"
#~ msgstr "いま"
"""


def test_labels_share_a_context_and_differ_by_text(path: Path) -> None:
    messages = [Message("label", "Next"), Message("label", "Previous"), Message("nav", "Next")]
    update(path, messages)
    catalogue = Catalogue.load(path)
    for item, text in zip(catalogue, ("次へ", "前へ", "次"), strict=True):
        item.msgstr = text
    catalogue.save()
    update(path, [*messages, Message("label", "View code")])
    catalogue = Catalogue.load(path)
    assert [catalogue.lookup(*message.key).text for message in messages] == ["次へ", "前へ", "次"]
    assert catalogue.lookup("label", "View code") == Entry("View code", "missing")


def test_a_file_from_a_gettext_editor_is_read(path: Path) -> None:
    write(path, "\ufeff" + FROM_AN_EDITOR.replace("\n", "\r\n"))
    catalogue = Catalogue.load(path)
    item = catalogue.item("p:a", "New text")
    assert item is not None
    assert (item.msgid, item.msgstr, item.previous, item.fuzzy) == ("New text", "新しい文", "Old text", True)
    assert (item.line_at(0), item.line_at(2), item.line_at(3)) == (17, 17, 18)
    assert [(old.msgstr, old.previous, old.fuzzy) for old in catalogue.items if old.obsolete] == [("いま", "was", True)]
