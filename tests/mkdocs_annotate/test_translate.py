"""The commands for translators, on a small project of their own."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from lessons import code, lesson, printed, save
from lessons import text as cell

import mkdocs_annotate
from mkdocs_annotate import notebooks, page
from mkdocs_annotate.__main__ import main
from mkdocs_annotate.catalogue import Catalogue
from mkdocs_annotate.translate import Problem, Project, ProjectError, check, digest, page_texts, read_digest, translate

CONFIG = """\
site_name: Toys
site_url: !ENV [SITE_URL, ""]
nav:
  - Home: index.md
  - The pages:
      - toy.md
plugins:
  - search
  - annotate:
      package: toys
      languages: {en: English, ja: 日本語}
"""
SOURCE = '''\
"""
# Toy

A mean of the gradients.
"""

# Take `lr` times the gradient.
x = 1
'''
TRANSLATIONS = {
    "# Toy": "トイ",
    "Toy": "トイ",
    "A mean of the gradients.": "勾配の平均です。",
    "Take `lr` times the gradient.": "勾配に`lr`を掛けます。",
    "Home": "ホーム",
    "The pages": "ページ",
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name, text in {
        "mkdocs.yml": CONFIG,
        "toys/__init__.py": "",
        "toys/toy.py": SOURCE,
        "docs/index.md": "---\ntitle: Toys\n---\n\n# Toys\n\nSee [the toy](toy.md).\n",
        "docs/index.ja.md": "---\ntitle: トイ\n---\n\n# トイ\n\n[トイ](toy.md)を参照してください。\n",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path


@pytest.fixture
def project(root: Path) -> Project:
    return Project.load(root / "mkdocs.yml")


@pytest.fixture
def whole(root: Path, project: Project) -> Project:
    """The project with all its texts translated."""
    translate(project)
    for path in (root / "locale" / "ja").glob("*.po"):
        catalogue = Catalogue.load(path)
        for item in catalogue:
            item.msgstr = TRANSLATIONS.get(item.msgid, "語")
            if item.msgid.startswith("# Toy\n"):
                item.msgstr = "# トイ\n\n勾配の平均です。"
        catalogue.save()
    assert check(project) == []
    return project


def change(path: Path, old: str, new: str) -> None:
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")


def shown(problems: list[Problem]) -> str:
    return "\n".join(str(problem) for problem in problems)


def test_translate_makes_catalogues_with_every_text(root: Path, project: Project) -> None:
    report, problems = translate(project)
    assert problems == []
    assert "locale/ja/toy.po: updated" in report
    catalogue = Catalogue.load(root / "locale/ja/toy.po")
    assert {item.key for item in catalogue} == {message.key for message in page.messages(root / "toys/toy.py", "toy")}
    assert [item.msgid for item in Catalogue.load(root / "locale/ja/site.po") if item.context == "nav"] == [
        "Home",
        "The pages",
    ]
    assert any(line.startswith("ja: 0 of ") for line in report)


def test_a_second_translate_changes_nothing(root: Path, project: Project) -> None:
    translate(project)
    before = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
    report, _ = translate(project)
    assert len(report) == 1
    assert {path: path.read_bytes() for path in root.rglob("*") if path.is_file()} == before


def test_check_before_translate_says_what_to_run(project: Project) -> None:
    text = shown(check(project))
    assert "locale/ja/toy.po:1: there is no such catalogue for" in text
    assert (
        "docs/index.ja.md:1: its front matter has no source_digest; run `python -m mkdocs_annotate translate`." in text
    )


def test_a_missing_translation_is_named_with_its_line(root: Path, whole: Project) -> None:
    catalogue = Catalogue.load(root / "locale/ja/toy.po")
    item = next(item for item in catalogue if item.msgid.startswith("Take"))
    item.msgstr = ""
    catalogue.save()
    assert shown(check(whole)) == f'locale/ja/toy.po:{item.line}: "{item.context}" is not translated.'


def test_a_changed_source_is_stale_and_after_translate_fuzzy(root: Path, whole: Project) -> None:
    change(root / "toys/toy.py", "Take `lr` times", "Take `lr` three times")
    assert "the English text changed; run `python -m mkdocs_annotate translate`" in shown(check(whole))
    translate(whole)
    assert "is marked fuzzy" in shown(check(whole))


def test_a_text_that_is_gone_is_named(root: Path, whole: Project) -> None:
    change(root / "toys/toy.py", "# Take `lr` times the gradient.\n", "")
    assert "is not in the source any more" in shown(check(whole))


def test_a_new_text_is_named_at_its_line_in_the_source(root: Path, whole: Project) -> None:
    change(root / "toys/toy.py", "x = 1\n", "x = 1\n\n# Add one.\ny = 2\n")
    assert "toys/toy.py:10: " in shown(check(whole))


def test_formula_and_code_that_differ_are_named_with_their_line(root: Path, whole: Project) -> None:
    change(root / "locale/ja/toy.po", "勾配に`lr`を", "勾配に`rl`を")
    text = shown(check(whole))
    assert "the code lr of the English text is missing." in text
    assert "the code rl is not in the English text." in text
    assert all(line.startswith("locale/ja/toy.po:") for line in text.splitlines())


def test_a_broken_catalogue_is_one_problem_and_the_rest_is_still_checked(root: Path, whole: Project) -> None:
    change(root / "locale/ja/toy.po", 'msgstr "', "msgstr ")
    change(root / "docs/index.ja.md", "トイ](toy.md)", "トイ](toys.md)")
    text = shown(check(whole))
    assert "locale/ja/toy.po:2: a text stands between two quotes" in text
    assert "docs/index.ja.md:5: the link to toy.md of the English text is missing." in text
    report, problems = translate(whole)
    assert "a text stands between two quotes" in shown(problems)
    assert "unreadable" in report[-1]


def test_a_broken_source_is_one_problem_and_the_rest_is_still_checked(root: Path, whole: Project) -> None:
    (root / "toys/broken.py").write_text("x = (\n", encoding="utf-8")
    assert "toys/broken.py:1: " in shown(check(whole))


def test_a_catalogue_without_a_page_is_named(root: Path, whole: Project) -> None:
    (root / "locale/ja/old.po").write_text((root / "locale/ja/site.po").read_text(encoding="utf-8"), encoding="utf-8")
    assert shown(check(whole)) == "locale/ja/old.po:1: no page has this name; rename or delete the catalogue."


def test_the_catalogue_of_a_module_that_is_no_page_is_read_for_its_language(root: Path, whole: Project) -> None:
    change(root / "mkdocs.yml", "package: toys", "package: toys\n      exclude: [drawings]")
    (root / "toys/drawings.py").write_text("x = 1\n", encoding="utf-8")
    (root / "locale/ja/drawings.po").write_text(
        'msgctxt "drawings:a"\nmsgid "{n} steps"\nmsgstr "{n}ステップ"\n\n'
        'msgctxt "drawings:a"\nmsgid "{n} weights"\nmsgstr "{m} 個"\n\nmsgctxt "drawings:a"\nmsgid "b"\nmsgstr ""\n',
        encoding="utf-8",
    )
    assert shown(check(Project.load(root / "mkdocs.yml"))).splitlines() == [
        "locale/ja/drawings.po:7: no space beside Japanese text (the gap is the style sheet's). …{m} 個…",
        "locale/ja/drawings.po:7: the field {m} is not in the English text.",
        "locale/ja/drawings.po:7: the field {n} of the English text is missing.",
        'locale/ja/drawings.po:10: "b" is not translated.',
    ]


def test_a_page_without_its_twin_is_named_and_the_other_way_round(root: Path, whole: Project) -> None:
    (root / "docs/guide.md").write_text("# Guide\n", encoding="utf-8")
    (root / "docs/gone.ja.md").write_text("# 案内\n", encoding="utf-8")
    assert shown(check(whole)).splitlines() == [
        "docs/gone.ja.md:1: the page that this one translates is gone; delete or rename it.",
        "docs/guide.md:1: the page has no twin guide.ja.md.",
    ]


def test_a_twin_is_stale_until_it_is_accepted(root: Path, whole: Project) -> None:
    twin = root / "docs/index.ja.md"
    change(root / "docs/index.md", "See [the toy]", "Please see [the toy]")
    assert "docs/index.md changed; revise this page and run" in shown(check(whole))
    translate(whole)
    assert "docs/index.md changed" in shown(check(whole))
    translate(whole, accept=[twin])
    assert check(whole) == []
    assert read_digest(twin.read_text(encoding="utf-8")) == digest(root / "docs/index.md")


def test_the_digest_goes_into_the_front_matter_and_leaves_the_rest(root: Path, project: Project) -> None:
    (root / "docs/plain.md").write_text("# Plain\n", encoding="utf-8")
    (root / "docs/plain.ja.md").write_text("# 平文\n", encoding="utf-8")
    translate(project)
    assert (
        (root / "docs/index.ja.md")
        .read_text(encoding="utf-8")
        .startswith(f"---\ntitle: トイ\nsource_digest: {digest(root / 'docs/index.md')}\n---\n\n# トイ\n")
    )
    assert (root / "docs/plain.ja.md").read_text(encoding="utf-8") == (
        f"---\nsource_digest: {digest(root / 'docs/plain.md')}\n---\n\n# 平文\n"
    )


def test_an_empty_digest_is_filled_in_and_not_doubled(root: Path, project: Project) -> None:
    change(root / "docs/index.ja.md", "title: トイ\n", "title: トイ\nsource_digest:\n")
    translate(project)
    text = (root / "docs/index.ja.md").read_text(encoding="utf-8")
    assert text.startswith(f"---\ntitle: トイ\nsource_digest: {digest(root / 'docs/index.md')}\n---\n")


def test_settings_that_are_left_empty_have_their_defaults(root: Path, project: Project) -> None:
    change(root / "mkdocs.yml", "      package: toys\n", "      package: toys\n      exclude:\n      locale:\n")
    assert Project.load(root / "mkdocs.yml") == project


def test_a_module_named_like_the_catalogue_of_the_labels_is_named(root: Path, whole: Project) -> None:
    (root / "toys/site.py").write_text("# A comment.\nx = 1\n", encoding="utf-8")
    for problems in (check(whole), translate(whole)[1]):
        assert "toys/site.py:1: site.po is the catalogue of the labels already; rename the module" in shown(problems)


def test_the_digest_does_not_depend_on_line_ends(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_bytes(b"# A\n\ntext\n")
    (tmp_path / "b.md").write_bytes(b"# A\r\n\r\ntext\r\n")
    assert digest(tmp_path / "a.md") == digest(tmp_path / "b.md")


def test_japanese_findings_have_the_line_of_the_file(root: Path, whole: Project) -> None:
    (root / "locale/glossary-ja.tsv").write_text("en\tja\tforbidden\nmean\t平均\t真ん中\n", encoding="utf-8")
    change(root / "docs/index.ja.md", "参照してください。", "参照してください。\n\n真ん中は 1です。")
    text = shown(check(whole))
    assert 'docs/index.ja.md:10: "真ん中" is not the word for "mean" here; write 平均. …' in text
    assert "docs/index.ja.md:10: no space beside Japanese text" in text
    catalogue = Catalogue.load(root / "locale/ja/toy.po")
    item = next(item for item in catalogue if item.msgid.startswith("Take"))
    item.msgstr = "一行目です。\n\n`lr`は**「勾配」**です。"
    catalogue.save()
    line = (root / "locale/ja/toy.po").read_text(encoding="utf-8").split("\n").index('"`lr`は**「勾配」**です。"') + 1
    assert f"locale/ja/toy.po:{line}: ** is shown as text" in shown(check(whole))


LESSON = lesson(cell("top", "# Toy\n\nA mean of `lr`."), code("c", "x", printed("1\n")), cell("end", "Home"))


@pytest.fixture
def taught(root: Path, whole: Project) -> Project:
    """The project with a notebook, translated, too."""
    change(root / "mkdocs.yml", "package: toys", "package: toys\n      notebooks: lessons")
    save(root / "lessons" / "lesson.ipynb", LESSON)
    project = Project.load(root / "mkdocs.yml")
    report, problems = translate(project)
    assert problems == []
    assert "locale/ja/lesson.po: updated" in report
    catalogue = Catalogue.load(root / "locale/ja/lesson.po")
    assert [item.key for item in catalogue] == [("lesson#top", "# Toy\n\nA mean of `lr`."), ("lesson#end", "Home")]
    for item in catalogue:
        item.msgstr = {"Home": "ホーム"}.get(item.msgid, "# トイ\n\n`lr`の平均です。")
    catalogue.save()
    assert "lessons/lesson.ja.ipynb: follows lessons/lesson.ipynb as it is now" in translate(project)[0]
    assert check(project) == []
    return project


def test_translate_writes_the_twin_of_a_notebook_once(root: Path, taught: Project) -> None:
    twin = notebooks.read(root / "lessons/lesson.ja.ipynb")
    assert [cell["source"] for cell in twin["cells"]] == ["# トイ\n\n`lr`の平均です。", "x", "ホーム"]
    assert twin["cells"][1] == LESSON["cells"][1]
    assert len(translate(taught)[0]) == 1


def test_a_twin_that_says_something_else_is_named_until_translate_writes_it_anew(root: Path, taught: Project) -> None:
    path, twin = root / "lessons/lesson.ipynb", root / "lessons/lesson.ja.ipynb"
    sentence = (
        "lessons/lesson.ja.ipynb:1: this is not what lessons/lesson.ipynb and its catalogue say; "
        "run `python -m mkdocs_annotate translate`."
    )
    for spoil in (
        lambda: change(twin, "平均です", "手で直した平均です"),
        lambda: twin.unlink(),
        lambda: change(path, '"1\\n"', '"2\\n"'),
        lambda: change(root / "locale/ja/lesson.po", "平均です", "別の平均です"),
    ):
        spoil()
        assert shown(check(taught)) == sentence
        assert shown(check(taught, ["lesson"])) == sentence
        assert check(taught, ["toy"]) == []
        translate(taught)
        assert check(taught) == []


def test_texts_of_a_notebook_are_checked_like_all_others(root: Path, taught: Project) -> None:
    change(root / "locale/ja/lesson.po", "`lr`の平均", "`rl`の平均")
    assert "locale/ja/lesson.po:15: the code lr of the English text is missing." in shown(check(taught))
    change(root / "lessons/lesson.ipynb", '"Home"', '"At home"')
    assert '"lesson#end": the English text changed; run' in shown(check(taught))


def test_a_broken_notebook_is_one_problem_and_the_rest_is_still_checked(root: Path, taught: Project) -> None:
    (root / "lessons/lesson.ja.ipynb").write_text("{", encoding="utf-8")
    assert shown(check(taught)).startswith("lessons/lesson.ja.ipynb:1: this is no notebook: ")
    change(root / "lessons/lesson.ipynb", '"cells"', '"celsl"')
    text = shown(check(taught))
    assert text.count("lessons/lesson.ipynb:1: this is no notebook: it has no list of cells.") == 1
    before = (root / "locale/ja/lesson.po").read_bytes()
    _, problems = translate(taught)
    assert shown(problems) == "lessons/lesson.ipynb:1: this is no notebook: it has no list of cells."
    assert (root / "locale/ja/lesson.po").read_bytes() == before


def test_a_twin_that_cant_be_written_is_named(root: Path, taught: Project) -> None:
    twin = root / "lessons/lesson.ja.ipynb"
    twin.unlink()
    twin.mkdir()
    assert shown(translate(taught)[1]) == "lessons/lesson.ja.ipynb:1: the notebook can't be written (Is a directory)."
    assert "lessons/lesson.ja.ipynb:1: the notebook can't be read (Is a directory)." in shown(check(taught))


def test_a_broken_catalogue_of_a_notebook_is_named_and_its_twin_stays(root: Path, taught: Project) -> None:
    change(root / "locale/ja/lesson.po", 'msgstr "', "msgstr ")
    before = (root / "lessons/lesson.ja.ipynb").read_bytes()
    assert shown(check(taught)) == shown(translate(taught)[1])
    assert shown(check(taught)).startswith("locale/ja/lesson.po:2: a text stands between two quotes")
    assert (root / "lessons/lesson.ja.ipynb").read_bytes() == before


def test_a_notebook_whose_catalogue_is_anothers_and_a_twin_of_none_are_named(root: Path, taught: Project) -> None:
    save(root / "lessons/toy.ipynb", LESSON)
    save(root / "lessons/gone.ja.ipynb", LESSON)
    before = (root / "locale/ja/toy.po").read_bytes()
    own = "lessons/toy.ipynb:1: toy.po is the catalogue of another page already; rename the notebook."
    gone = "lessons/gone.ja.ipynb:1: the page that this one translates is gone; delete or rename it."
    assert shown(check(taught)).splitlines() == [gone, own]
    assert shown(translate(taught)[1]) == own
    assert (root / "locale/ja/toy.po").read_bytes() == before
    assert not (root / "lessons/toy.ja.ipynb").exists()


def test_textlint_reads_the_texts_where_the_project_asks_for_it(root: Path, whole: Project) -> None:
    (root / ".textlintrc.json").write_text(
        json.dumps({"rules": {"preset-ja-technical-writing": True}}), encoding="utf-8"
    )
    with pytest.raises(ProjectError, match="npm ci"):
        check(whole)


def test_an_anchor_whose_row_moved_is_named_and_fixing_it_helps(root: Path, whole: Project) -> None:
    change(root / "toys/toy.py", "x = 1\n", "x = 1\n\n# Add.\ny = 2\n")
    translate(whole)
    change(root / "toys/toy.py", "# Add.", "# Before it.\nz = 3\n\n# Add.")
    moved = [problem for problem in check(whole) if problem.path == "anchors.tsv"]
    assert any("was another row, which is now" in problem.message for problem in moved)
    report, _ = translate(whole)
    assert any("was another row" in line for line in report)
    assert not [problem for problem in check(whole) if problem.path == "anchors.tsv"]


def test_an_edited_row_and_a_missing_list_are_named(root: Path, whole: Project) -> None:
    change(root / "toys/toy.py", "x = 1", "x = 3")
    assert "is a row whose text or code changed. Then run" in shown(check(whole))
    (root / "anchors.tsv").unlink()
    assert shown(check(whole)).startswith("anchors.tsv:1: there is no list of the anchors; run")
    translate(whole)
    change(root / "anchors.tsv", "\t", " ")
    assert shown(check(whole)).startswith("anchors.tsv:1: ")
    assert any(problem.path == "anchors.tsv" for problem in translate(whole)[1])


def test_some_pages_can_be_checked_alone(root: Path, whole: Project) -> None:
    (root / "locale/ja/toy.po").unlink()
    (root / "docs/index.ja.md").unlink()
    assert shown(check(whole, ["toy"])).startswith("locale/ja/toy.po:1: ")
    assert shown(check(whole, ["index"])) == "docs/index.md:1: the page has no twin index.ja.md."
    assert check(whole, ["site"]) == []
    with pytest.raises(ProjectError, match='no page is named "adm"'):
        check(whole, ["adm"])


def test_without_its_packages_the_check_says_what_to_install(whole: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sudachipy", None)
    monkeypatch.delitem(sys.modules, "mkdocs_annotate.japanese", raising=False)
    monkeypatch.delattr(mkdocs_annotate, "japanese", raising=False)
    with pytest.raises(ProjectError, match=r"need sudachipy: `pip install './mkdocs_annotate\[japanese\]'`"):
        check(whole)


def test_title_and_description_of_a_page_are_read_too() -> None:
    texts = list(
        page_texts(
            "x.ja.md", "---\ntitle: 題\ndescription: 説明\n---\n本文\n二行目\n", "---\ntitle: Title\n---\nBody\n"
        )
    )
    assert [(text.kind, text.markdown, text.line(0)) for text in texts] == [
        ("heading", "題", 2),
        ("item", "説明", 3),
        ("prose", "本文\n二行目\n", 5),
    ]
    assert texts[2].line(4) == 6


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ("site_name: x\n", "the plugin annotate with its option `package` is not there"),
        ("plugins: [search, {annotate: {}}]\n", "the plugin annotate with its option `package` is not there"),
        ("plugins: [\n", "mkdocs.yml:2: "),
        ("plugins:\n", "the plugin annotate with its option `package` is not there"),
        ("plugins: [search, {annotate: {package: }}]\n", "the plugin annotate with its option `package` is not there"),
        ("site_name: \x01\n", "mkdocs.yml can't be read: "),
    ],
)
def test_a_configuration_without_what_is_needed_is_refused(tmp_path: Path, config: str, words: str) -> None:
    (tmp_path / "mkdocs.yml").write_text(config, encoding="utf-8")
    with pytest.raises(ProjectError, match=words):
        Project.load(tmp_path / "mkdocs.yml")


def test_the_command_line_prints_each_problem_and_exits_with_1(
    root: Path, whole: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--config", str(root / "mkdocs.yml"), "check"]) == 0
    (root / "locale/ja/toy.po").unlink()
    assert main(["--config", str(root / "mkdocs.yml"), "check"]) == 1
    out, err = capsys.readouterr()
    assert "locale/ja/toy.po:1: there is no such catalogue" in err
    assert "1 problem" in out
    assert main(["--config", str(root / "mkdocs.yml"), "translate"]) == 0
    assert main(["--config", str(root / "nowhere.yml"), "check"]) == 1
    assert "is not there; run this in the folder of mkdocs.yml." in capsys.readouterr().err
