"""Bad input gets one clear sentence, and nothing else of the site is lost."""

import re
import shutil
import sys
from pathlib import Path

import pytest
from building import ADDRESS, Built, built, copy_of_project, mkdocs


@pytest.fixture(scope="module")
def whole(project, tmp_path_factory):
    """The sources with the equations already set, which a build of the site leaves behind."""
    if not (project / ".cache").exists():
        built(project, tmp_path_factory.mktemp("whole"))
    return project


@pytest.fixture
def spoilt(whole, tmp_path):
    """A copy of the sources to be spoilt."""
    folder = tmp_path / "project"
    shutil.copytree(whole, folder, symlinks=True)
    return folder


def build(folder, *arguments: str, **environment: str):
    done = mkdocs("build", *arguments, "-d", "site", folder=folder, **environment)
    return done, Built(folder / "site", done.stderr)


def edit(path, old: str, new: str) -> int:
    """Replace a text that is there once; return its line."""
    text = path.read_text(encoding="utf-8")
    assert text.count(old) == 1, f"{old!r} stands {text.count(old)} times in {path}"
    path.write_text(text.replace(old, new), encoding="utf-8")
    return text.partition(old)[0].count("\n") + 1


def other_pages_are_there(site, without: str | None = None):
    for folder in ("", "ja/"):
        pages = site.pages(folder)
        assert {"adam/", "adam_fp16/", "amsgrad/", "optimizer/", "guides/resume/"} <= set(pages)
        for page in pages:
            if page != without:
                assert (
                    '<section class="row' in site.document(folder + page).html
                    or "<h1" in site.document(folder + page).html
                )


def test_a_module_that_python_cant_parse_fails_a_strict_build_and_no_other_page(spoilt):
    """It is named with its line; without --strict the page itself says so."""
    path = spoilt / "labml_opt" / "amsgrad.py"
    line = path.read_text(encoding="utf-8").count("\n") + 1
    path.write_text(path.read_text(encoding="utf-8") + "def broken(:\n", encoding="utf-8")
    done, site = build(spoilt, "--strict")
    assert done.returncode != 0
    assert len(re.findall(rf"labml_opt/amsgrad\.py:{line}:\d+: Python can't parse this line", done.stderr)) == 1
    other_pages_are_there(site, without="amsgrad/")
    assert build(spoilt)[0].returncode == 0
    for folder in ("", "ja/"):
        assert f"labml_opt/amsgrad.py:{line}" in site.document(f"{folder}amsgrad/").html


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="this Python reads the syntax that the test takes for too new")
def test_a_source_newer_than_python_says_which_one_it_needs(spoilt):
    (spoilt / "labml_opt" / "newer.py").write_text(
        'def f[T](x: T) -> T:\n    """$x$"""\n    return x\n', encoding="utf-8"
    )
    done, _ = build(spoilt, "--strict")
    assert done.returncode != 0
    assert re.search(r"labml_opt/newer\.py:1:\d+: .*3\.12", done.stderr)


def test_an_equation_that_katex_rejects_is_named_with_file_line_and_column(spoilt):
    path = spoilt / "labml_opt" / "adam.py"
    line = path.read_text(encoding="utf-8").count("\n") + 2
    with path.open("a", encoding="utf-8") as file:
        file.write(r"""
# Here $\alpha + \nonsense{x}$ stands.
LAST = 1
""")
    done, site = build(spoilt, "--strict")
    assert done.returncode != 0
    column = r"# Here $\alpha + \nonsense{x}$".index(r"\nonsense") + 1
    assert f"labml_opt/adam.py:{line}:{column}: " in done.stderr
    other_pages_are_there(site, without="adam/")


def test_an_equation_of_a_hand_written_page_is_named_in_the_same_way(spoilt):
    path = spoilt / "docs" / "guides" / "resume.md"
    text = path.read_text(encoding="utf-8")
    path.write_text(text + "\nAnd $\\alpha + \\nonsense{x}$ too.\n", encoding="utf-8")
    done, _ = build(spoilt, "--strict")
    assert done.returncode != 0
    line = text.count("\n") + 2
    column = r"And $\alpha + \nonsense{x}$".index(r"\nonsense") + 1
    assert f"docs/guides/resume.md:{line}:{column}: " in done.stderr


@pytest.mark.parametrize("name", ["adam", "site"])
def test_a_broken_catalogue_is_named_with_its_line_and_the_english_is_shown(spoilt, name):
    path = spoilt / "locale" / "ja" / f"{name}.po"
    lines = path.read_text(encoding="utf-8").count("\n")
    with path.open("a", encoding="utf-8") as file:
        file.write('\nmsgctxt "adam:nowhere"\nmsgid "never closed\nmsgstr ""\n')
    done, site = build(spoilt, "--strict")
    assert done.returncode != 0
    assert len(re.findall(rf"locale/ja/{name}\.po:{lines + 3}: ", done.stderr)) == 1
    other_pages_are_there(site)
    if name == "adam":
        assert 'class="prose todo" lang="en"' in site.document("ja/adam/").html
        assert 'class="prose todo"' not in site.document("ja/amsgrad/").html


def test_an_english_text_that_changed_is_shown_marked_and_listed_and_fails_no_build(spoilt):
    """A row never shows Japanese that speaks of an older text."""
    path = spoilt / "labml_opt" / "adam.py"
    text = path.read_text(encoding="utf-8")
    comment = next(line for line in text.split("\n") if re.match(r"    +# [A-Z][a-z]+ .*\.$", line))
    edit(path, comment + "\n", comment + " And more.\n")
    done, site = build(spoilt, "--strict")
    assert done.returncode == 0, done.stderr
    assert re.search(r"not translated.*adam: 1\b", done.stderr)
    page = site.document("ja/adam/").html
    (row,) = re.findall(r'<div class="prose todo" lang="en">(.*?)</div>', page, re.DOTALL)
    assert "And more." in row
    assert "未翻訳" in row


def test_a_page_without_a_twin_is_english_marked_and_stands_for_the_english_one(spoilt):
    (spoilt / "docs" / "guides" / "resume.ja.md").unlink(missing_ok=True)
    done, site = build(spoilt, "--strict", SITE_URL=ADDRESS)
    assert done.returncode == 0, done.stderr
    assert "guides/resume.md" in done.stderr
    document = site.document("ja/guides/resume/")
    assert document.all("html") == [{"lang": "ja"}] or document.all("html")[0]["lang"] == "ja"
    assert [attrs for _, attrs in document.elements if "book" in attrs.get("class", "") and attrs.get("lang") == "en"]
    assert "未翻訳" in document.html
    assert [link["href"] for link in document.all("link", rel="canonical")] == [ADDRESS + "guides/resume/"]
    assert "ja/guides/resume/" not in (site.folder / "ja" / "sitemap.xml").read_text(encoding="utf-8")
    links = [a for a in site.document("ja/").all("a") if a.get("href") == "guides/resume/" and "lang" in a]
    assert [link["lang"] for link in links] == ["en", "en"]  # in the header's list and in the drawer


def test_a_twin_with_other_headings_is_reported(spoilt):
    path = spoilt / "docs" / "guides" / "annotate.ja.md"
    with path.open("a", encoding="utf-8") as file:
        file.write("\n## 余分な見出し\n")
    done, _ = build(spoilt, "--strict")
    assert done.returncode != 0
    assert "guides/annotate.md" in done.stderr
    assert "headings" in done.stderr


def test_scripts_and_unsafe_links_come_through_neither_comments_nor_catalogues(spoilt):
    with (spoilt / "labml_opt" / "adam.py").open("a", encoding="utf-8") as file:
        file.write(
            "\n# <script>alert(1)</script> <img src=x onerror=alert(1)> [x](javascript:alert(1))\n"
            'S = "</pre><script>alert(2)</script>"\n'
        )
    for name, context in (("amsgrad", "amsgrad#title"), ("site", "label"), ("site", "nav")):
        po = spoilt / "locale" / "ja" / f"{name}.po"
        text = po.read_text(encoding="utf-8")
        first = re.search(rf'msgctxt "{context}"\nmsgid .*\nmsgstr "', text)
        script = f"<script>alert('{context}')</script>"
        po.write_text(text[: first.end()] + script + text[first.end() :], encoding="utf-8")
    done, site = build(spoilt, "--strict")
    assert done.returncode == 0, done.stderr
    for page in ("adam/", "ja/adam/", "ja/amsgrad/", "ja/guides/resume/", "ja/", "ja/404.html"):
        html = site.document(page).html
        assert "<script>alert" not in html
        assert not [attrs for _, attrs in site.document(page).elements if "onerror" in attrs]
        assert not [
            attrs for _, attrs in site.document(page).elements if attrs.get("href", "").startswith("javascript:")
        ]
    for context in ("amsgrad#title", "label", "nav"):
        assert f"&lt;script&gt;alert(&#x27;{context}&#x27;)" in site.document("ja/amsgrad/").html.replace("'", "&#x27;")


def test_a_link_to_a_page_that_isnt_there_fails_a_strict_build(spoilt):
    with (spoilt / "labml_opt" / "adam.py").open("a", encoding="utf-8") as file:
        file.write("\n# See [that page](nowhere.md) and [that row](amsgrad.md#AMSGrad.nothing).\nLAST = 1\n")
    done, _ = build(spoilt, "--strict")
    assert done.returncode != 0
    assert "nowhere.md" in done.stderr
    assert "amsgrad.md#AMSGrad.nothing" in done.stderr


def test_a_hand_written_page_and_a_module_of_one_name_are_refused(spoilt):
    (spoilt / "docs" / "adam.md").write_text("# Adam\n", encoding="utf-8")
    done, _ = build(spoilt)
    assert done.returncode != 0
    assert "docs/adam.md and labml_opt/adam.py would be the same page" in done.stderr
    assert "Traceback" not in done.stderr


def test_without_node_one_sentence_says_what_to_install(spoilt, tmp_path):
    if shutil.which("node", path=str(Path(sys.executable).parent)):
        pytest.skip("this Python brings a Node of its own, so there is no doing without")
    shutil.rmtree(spoilt / ".cache", ignore_errors=True)
    done, _ = build(spoilt, PATH=str(tmp_path))
    assert done.returncode != 0
    assert "Equations are set by Node, version 20 or later" in done.stderr
    assert "Traceback" not in done.stderr


def test_without_katex_one_sentence_says_what_to_run(spoilt):
    shutil.rmtree(spoilt / ".cache", ignore_errors=True)
    (spoilt / "node_modules").unlink()
    done, _ = build(spoilt)
    assert done.returncode != 0
    assert re.search(r"KaTeX is not in .*node_modules/katex: run `npm ci`", done.stderr)
    assert "Traceback" not in done.stderr


def test_another_theme_than_material_is_refused_with_a_sentence(spoilt):
    edit(spoilt / "mkdocs.yml", "  name: material\n", "  name: mkdocs\n")
    done, _ = build(spoilt)
    assert done.returncode != 0
    assert "annotate stands on MkDocs Material: write `theme: {name: material}`" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_copy_that_is_spoilt_is_whole(tmp_path):
    """So that the tests above fail for their own reasons."""
    done, site = build(copy_of_project(tmp_path), "--strict")
    assert done.returncode == 0, done.stderr
    other_pages_are_there(site)
