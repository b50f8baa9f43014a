"""Bad input gets one clear sentence, and nothing else of the site is lost."""

import re
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from building import ADDRESS, Built, built, mkdocs


@pytest.fixture(scope="module")
def unspoilt(project, tmp_path_factory):
    """The site of the sources as they are."""
    return built(project, tmp_path_factory.mktemp("whole"))


@pytest.fixture(scope="module")
def whole(project, unspoilt):
    """The sources with the equations already set, which a build of the site leaves behind."""
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


# What fails a strict build: all of it in one project, since each piece gets a warning of its own


NEWER = 'def f[T](x: T) -> T:\n    """$x$"""\n    return x\n'
EQUATION = r"$\alpha + \nonsense{x}$"
LOST = "See [that page](nowhere.md) and [that row](amsgrad.md#AMSGrad.nothing)."
NEVER_CLOSED = '\nmsgctxt "adam:nowhere"\nmsgid "never closed\nmsgstr ""\n'


@pytest.fixture(scope="module")
def failing(whole, tmp_path_factory):
    """A project with bad input of every kind: its strict build, and in which line of each file the bad input begins."""
    folder = shutil.copytree(whole, tmp_path_factory.mktemp("failing") / "project", symlinks=True)
    lines = {
        name: append(folder / name, text)
        for name, text in (
            ("labml_opt/amsgrad.py", "def broken(:\n"),
            ("labml_opt/adam.py", f"\n# Here {EQUATION} stands.\nLAST = 1\n"),
            ("docs/guides/resume.md", f"\nAnd {EQUATION} too.\n"),
            ("locale/ja/radam.po", NEVER_CLOSED),
            ("locale/ja/site.po", NEVER_CLOSED),
            ("docs/guides/annotate.ja.md", "\n## 余分な見出し\n"),
            ("labml_opt/noam.py", f"\n# {LOST}\nLAST = 1\n"),
        )
    }
    if sys.version_info < (3, 12):
        (folder / "labml_opt" / "newer.py").write_text(NEWER, encoding="utf-8")
    done, site = build(folder, "--strict")
    assert done.returncode != 0
    return SimpleNamespace(folder=folder, site=site, lines=lines, said=done.stderr)


def append(path, text: str) -> int:
    """Put a text at the end of a file; return the line that it begins in."""
    before = path.read_text(encoding="utf-8")
    path.write_text(before + text, encoding="utf-8")
    return before.count("\n") + 1


def warnings(failing, pattern: str) -> list[str]:
    """The warnings of a build that match, each of which fails a strict one."""
    return re.findall(rf"^WARNING -  .*{pattern}.*", failing.said, re.M)


def test_a_module_that_python_cant_parse_fails_a_strict_build_and_no_other_page(failing):
    """It is named with its line; without --strict the page itself says so."""
    line = failing.lines["labml_opt/amsgrad.py"]
    assert len(warnings(failing, rf"labml_opt/amsgrad\.py:{line}:\d+: Python can't parse this line")) == 1
    other_pages_are_there(failing.site, without="amsgrad/")
    done, site = build(failing.folder)
    assert done.returncode == 0
    for folder in ("", "ja/"):
        assert f"labml_opt/amsgrad.py:{line}" in site.document(f"{folder}amsgrad/").html


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="this Python reads the syntax that the test takes for too new")
def test_a_source_newer_than_python_says_which_one_it_needs(failing):
    assert len(warnings(failing, r"labml_opt/newer\.py:1:\d+: .*3\.12")) == 1


def test_an_equation_that_katex_rejects_is_named_with_file_line_and_column(failing):
    line = failing.lines["labml_opt/adam.py"] + 1
    column = f"# Here {EQUATION}".index(r"\nonsense") + 1
    assert warnings(failing, rf"labml_opt/adam\.py:{line}:{column}: ")
    other_pages_are_there(failing.site, without="adam/")


def test_an_equation_of_a_hand_written_page_is_named_in_the_same_way(failing):
    line = failing.lines["docs/guides/resume.md"] + 1
    column = f"And {EQUATION}".index(r"\nonsense") + 1
    assert warnings(failing, rf"docs/guides/resume\.md:{line}:{column}: ")
    other_pages_are_there(failing.site, without="guides/resume/")


@pytest.mark.parametrize("name", ["radam", "site"])
def test_a_broken_catalogue_is_named_with_its_line_and_the_english_is_shown(failing, name):
    line = failing.lines[f"locale/ja/{name}.po"] + 2
    assert len(warnings(failing, rf"locale/ja/{name}\.po:{line}: ")) == 1
    other_pages_are_there(failing.site)
    if name == "radam":
        assert 'class="prose todo" lang="en"' in failing.site.document("ja/radam/").html
        assert 'class="prose todo"' not in failing.site.document("ja/adam_warmup/").html
    else:
        assert "Outline" in failing.site.document("ja/adam_warmup/").html


def test_a_twin_with_other_headings_is_reported(failing):
    assert [said for said in warnings(failing, "headings") if "guides/annotate.md" in said]


def test_a_link_to_a_page_that_isnt_there_fails_a_strict_build(failing):
    assert warnings(failing, r"nowhere\.md")
    assert warnings(failing, r"amsgrad\.md#AMSGrad\.nothing")


# What fails no build


SCRIPTS = (
    "\n# <script>alert(1)</script> <img src=x onerror=alert(1)> [x](javascript:alert(1))\n"
    'S = "</pre><script>alert(2)</script>"\n'
)
TRANSLATED = (("amsgrad", "amsgrad#title"), ("site", "label"), ("site", "nav"))


@pytest.fixture(scope="module")
def going_on(whole, tmp_path_factory):
    """A project with what a build gets over."""
    folder = shutil.copytree(whole, tmp_path_factory.mktemp("going") / "project", symlinks=True)
    path = folder / "labml_opt" / "radam.py"
    text = path.read_text(encoding="utf-8")
    comment = next(line for line in text.split("\n") if re.match(r"    +# [A-Z][a-z]+ .*\.$", line))
    edit(path, comment + "\n", comment + " And more.\n")
    (folder / "docs" / "guides" / "resume.ja.md").unlink()
    append(folder / "labml_opt" / "adam.py", SCRIPTS)
    for name, context in TRANSLATED:
        po = folder / "locale" / "ja" / f"{name}.po"
        text = po.read_text(encoding="utf-8")
        first = re.search(rf'msgctxt "{context}"\nmsgid .*\nmsgstr "', text)
        script = f"<script>alert('{context}')</script>"
        po.write_text(text[: first.end()] + script + text[first.end() :], encoding="utf-8")
    done, site = build(folder, "--strict", SITE_URL=ADDRESS)
    assert done.returncode == 0, done.stderr
    return SimpleNamespace(site=site, said=done.stderr)


def test_an_english_text_that_changed_is_shown_marked_and_listed_and_fails_no_build(going_on):
    """A row never shows Japanese that speaks of an older text."""
    assert re.search(r"not translated.*radam: 1\b", going_on.said)
    page = going_on.site.document("ja/radam/").html
    (row,) = re.findall(r'<div class="prose todo" lang="en">(.*?)</div>', page, re.DOTALL)
    assert "And more." in row
    assert "未翻訳" in row


def test_a_page_without_a_twin_is_english_marked_and_stands_for_the_english_one(going_on):
    site = going_on.site
    assert "guides/resume.md" in going_on.said
    document = site.document("ja/guides/resume/")
    assert document.all("html") == [{"lang": "ja"}] or document.all("html")[0]["lang"] == "ja"
    assert [attrs for _, attrs in document.elements if "book" in attrs.get("class", "") and attrs.get("lang") == "en"]
    assert "未翻訳" in document.html
    assert [link["href"] for link in document.all("link", rel="canonical")] == [ADDRESS + "guides/resume/"]
    assert "ja/guides/resume/" not in (site.folder / "ja" / "sitemap.xml").read_text(encoding="utf-8")
    links = [a for a in site.document("ja/").all("a") if a.get("href") == "guides/resume/" and "lang" in a]
    assert [link["lang"] for link in links] == ["en", "en"]  # in the header's list and in the drawer


def test_scripts_and_unsafe_links_come_through_neither_comments_nor_catalogues(going_on):
    site = going_on.site
    for page in ("adam/", "ja/adam/", "ja/amsgrad/", "ja/guides/resume/", "ja/", "ja/404.html"):
        html = site.document(page).html
        assert "<script>alert" not in html
        assert not [attrs for _, attrs in site.document(page).elements if "onerror" in attrs]
        assert not [
            attrs for _, attrs in site.document(page).elements if attrs.get("href", "").startswith("javascript:")
        ]
    assert "alert(1)" in site.document("adam/").html
    for _, context in TRANSLATED:
        assert f"&lt;script&gt;alert(&#x27;{context}&#x27;)" in site.document("ja/amsgrad/").html.replace("'", "&#x27;")


# What there is no building with


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


def test_the_copy_that_is_spoilt_is_whole(unspoilt):
    """So that the tests above fail for their own reasons."""
    assert not re.search(r"^WARNING -", unspoilt.log, re.M)
    other_pages_are_there(unspoilt)
