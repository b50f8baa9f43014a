"""What mkdocs.yml or the names of files can get wrong, on a site of two modules and one page: one sentence each."""

import pytest
from building import mkdocs

CONFIG = """\
site_name: Walks
theme: {name: material}
plugins:
  - search
  - annotate: {package: walk, LANGUAGES}
"""


@pytest.fixture
def small(tmp_path):
    """The sources of a site that needs no equations."""
    write(tmp_path, "walk/descent.py", '"""Walk downhill."""\n')
    write(tmp_path, "docs/index.md", "# Walks\n")
    configure(tmp_path, "languages: {en: English, ja: 日本語}")
    return tmp_path


def write(folder, name: str, text: str) -> None:
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text, encoding="utf-8")


def configure(folder, languages: str) -> None:
    write(folder, "mkdocs.yml", CONFIG.replace("LANGUAGES", languages))


def refused(folder, *options: str) -> str:
    done = mkdocs("build", "--strict", *options, folder=folder)
    assert done.returncode != 0
    assert "Traceback" not in done.stderr
    return done.stderr


@pytest.mark.parametrize(
    ("files", "sentence"),
    [
        (["walk/ja.py"], "walk/ja.py and docs/index.md in the language ja would be the same page"),
        (["docs/ja/index.md"], "docs/ja/index.md and docs/index.md in the language ja would be the same page"),
        (["docs/ja/descent.md"], "docs/ja/descent.md and walk/descent.py in the language ja would be the same page"),
        (["walk/README.py"], "docs/index.md and walk/README.py would be the same page"),
        (["walk/a.py", "walk/a/index.py"], "walk/a/index.py and walk/a.py would be the same page"),
        (["docs/descent/index.html"], "docs/descent/index.html and walk/descent.py would be the same page"),
    ],
)
def test_two_sources_of_one_page_are_refused_and_both_named(small, files, sentence):
    for name in files:
        write(small, name, '"""Walk."""\n' if name.endswith(".py") else "# Walk\n")
    assert sentence in refused(small)


def test_a_file_in_the_folder_of_a_language_would_be_lost_and_is_refused(small):
    write(small, "docs/ja/picture.txt", "a file\n")
    assert "docs/ja/picture.txt would be written into ja/, which holds only the pages" in refused(small)


def test_the_site_that_is_spoilt_is_whole(small):
    """So that the tests here fail for their own reasons."""
    done = mkdocs("build", "--strict", folder=small)
    assert done.returncode == 0, done.stderr
    assert 'lang="ja"' in (small / "site" / "ja" / "descent" / "index.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("languages", "sentence"),
    [
        ("languages: {}", "annotate needs a language: write `languages: {en: English}`"),
        ("languages: {en: English, xx: Nobody}", "`languages` names xx, a language that Material does not know"),
        ("locale: mkdocs.yml", "mkdocs.yml is a file: `locale` names the folder of the catalogues"),
        ("exclude: [descent]", "walk holds no module that becomes a page"),
    ],
)
def test_a_wrong_setting_is_refused_in_a_sentence(small, languages, sentence):
    configure(small, languages)
    assert sentence in refused(small)


def test_a_build_of_only_what_changed_is_refused_in_a_sentence(small):
    """It would leave out the English pages whose headings the others take."""
    assert "annotate makes the pages of all languages together: leave `--dirty` out" in refused(small, "--dirty")


def test_a_link_of_a_module_to_a_page_that_is_left_out_is_told(small):
    write(small, "walk/descent.py", '"""Walk as in [this draft](draft.md)."""\n')
    write(small, "docs/draft.md", "# Draft\n")
    write(small, "mkdocs.yml", (small / "mkdocs.yml").read_text(encoding="utf-8") + "exclude_docs: draft.md\n")
    assert "walk/descent.py:1:28: the link to draft.md leads nowhere, so it is shown as text" in refused(small)


def test_a_package_that_is_not_there_is_refused_in_a_sentence(small):
    (small / "walk" / "descent.py").unlink()
    (small / "walk").rmdir()
    assert "walk is not there: `package` names the folder of the modules" in refused(small)


def test_a_catalogue_that_is_a_folder_is_named(small):
    (small / "locale" / "ja" / "descent.po").mkdir(parents=True)
    assert "locale/ja/descent.po:1: the catalogue can't be read" in refused(small)


@pytest.mark.parametrize("content", [b"\x89PNG\r\n\x1a\n\x00\xff", b"no drawing\n"])
def test_a_figure_that_is_no_svg_is_named_with_its_place(small, content):
    write(small, "walk/descent.py", '"""\nWalk.\n\n![A hill](figures/hill.svg)\n"""\n')
    write(small, "docs/figures/hill.svg", "")
    (small / "docs" / "figures" / "hill.svg").write_bytes(content)
    error = refused(small)
    assert "walk/descent.py:" in error
    assert "the figure docs/figures/hill.svg is no SVG in UTF-8" in error
