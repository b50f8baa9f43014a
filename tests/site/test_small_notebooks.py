"""Notebooks on small sites: what a build makes of them, beside mkdocs-jupyter, and what it refuses."""

import json
import re
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from building import Built, built, mkdocs

from mkdocs_annotate import jupyter, languages, notebooks
from mkdocs_annotate.catalogue import Catalogue
from mkdocs_annotate.heads import languages as named
from mkdocs_annotate.translate import Project, translate

sys.path.insert(0, str(Path(__file__).parents[1] / "mkdocs_annotate"))

from lessons import STAMP, code, failed, lesson, printed, save, text

ADDRESS = "https://example.org/walks/"
KNOWN = {"SITE_URL": ADDRESS, "REPO_URL": "https://github.com/example/walks.git", "SOURCE": "walks.whl"}
CONFIG = """\
site_name: Walks
site_url: !ENV [SITE_URL, ""]
repo_url: !ENV [REPO_URL, ""]
theme: {name: material}
plugins:
  - search
  - annotate: {package: walk, languages: {en: English, ja: 日本語}, notebooks: lessons, source: !ENV [SOURCE, ""]}
  - mkdocs-jupyter: {include: ["*.ipynb"]}
"""
HEAD = text(
    "top",
    "# A walk\n\nSee [the step](../walk/descent.py#step), [home](../docs/index.md#walks), [on](older.ipynb), "
    "[the map](../docs/map.txt).",
)
CELLS = (
    HEAD,
    code("install", 'SOURCE = ""', tags=("install",)),
    text("heading", "## Where it leads"),
    code(
        "run", 'open("EXECUTED.marker", "w").write("x")\nfrom walk.descent import step\nprint(1 < 2)', printed("True\n")
    ),
)
JAPANESE = {HEAD["source"]: HEAD["source"].replace("A walk", "散歩"), "## Where it leads": "## 行き先"}


def write(folder: Path, name: str, content: str) -> None:
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(content, encoding="utf-8")


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """The sources of a site with one notebook."""
    return sources(tmp_path)


def sources(folder: Path) -> Path:
    write(folder, "walk/descent.py", '"""Walk downhill."""\n\n\ndef step():\n    """Take a step."""\n')
    write(folder, "docs/index.md", "# Walks\n\nSee [the walk](lessons/lesson.ipynb#where-it-leads).\n")
    write(folder, "docs/map.txt", "up and down\n")
    write(folder, "mkdocs.yml", CONFIG)
    save(folder / "lessons" / "lesson.ipynb", lesson(*CELLS))
    return folder


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    """The sources of a site with a notebook, its twin and its run on a GPU, and one whose run on a GPU is old."""
    folder = sources(tmp_path_factory.mktemp("walks"))
    save(folder / "lessons" / "older.ipynb", lesson(text("top", "# An older walk"), code("run", "x")))
    now = notebooks.sources(notebooks.read(folder / "lessons" / "lesson.ipynb"), folder / "walk")
    for name, found in (("lesson", now), ("older", {"cells": "other"})):
        stamp = STAMP | {"device": "A GPU", "sources": found}
        cells = json.loads((folder / "lessons" / f"{name}.ipynb").read_text(encoding="utf-8"))["cells"]
        save(folder / "lessons" / f"{name}.cuda.ipynb", lesson(*cells, stamp=stamp))
    project = Project.load(folder / "mkdocs.yml")
    translate(project)
    catalogue = Catalogue.load(folder / "locale" / "ja" / "lesson.po")
    for item in catalogue:
        item.msgstr = JAPANESE[item.msgid]
    catalogue.save()
    translate(project)
    return folder


@pytest.fixture(scope="module")
def site(whole, tmp_path_factory) -> Built:
    """The site as it is published."""
    return built(whole, tmp_path_factory.mktemp("site"), **KNOWN)


def refused(folder: Path) -> str:
    done = mkdocs("build", folder=folder)
    assert done.returncode != 0
    assert "Traceback" not in done.stderr
    return done.stderr


def downloaded(site: Built, name: str) -> dict:
    return notebooks.read(site.folder / "lessons" / "download" / name)


# What is built


def test_a_notebook_is_a_page_in_each_language_with_the_same_anchors_and_outputs(site):
    for folder, title, heading in (("", "A walk", "Where it leads"), ("ja/", "散歩", "行き先")):
        page = site.document(f"{folder}lessons/lesson/")
        assert f'<h1 id="top">{title}</h1>' in page.html
        assert re.search(rf'<h2 id="where-it-leads">{heading}', page.html)
        assert re.search(r"<pre[^>]*>\s*True\s*</pre>", page.html)
        assert f"<title>{title} · Walks</title>" in page.html
        assert [link["href"] for link in page.all("a") if "descent/#step" in link["href"]] == [
            "../../descent/#step"
        ] * 2
        assert [link["href"] for link in page.all("a") if link["href"].endswith("older/")]
    assert 'class="todo"' not in site.document("ja/lessons/lesson/").html
    assert site.document("ja/lessons/older/").html.count("未翻訳") == 0  # there is no catalogue of labels here
    assert 'class="todo" lang="en"' in site.document("ja/lessons/older/").html


def test_nothing_of_jupyterlab_comes_along(site):
    page = site.document("lessons/lesson/").html
    assert "--jp-" not in page
    assert "mathjax" not in page.lower()
    assert len(page) < 20_000


def test_the_search_finds_what_a_cell_shows_and_not_its_number(site):
    for folder in ("", "ja/"):
        index = json.loads((site.folder / folder / "search" / "search_index.json").read_text(encoding="utf-8"))
        found = {entry["location"]: entry["text"] for entry in index["docs"]}
        assert "True" in found["lessons/lesson/#where-it-leads"]
        assert not [entry for entry in found.values() if re.search(r"\[1\]|In \[|Out\[", entry)]


def test_a_run_on_a_gpu_is_told_and_one_of_an_earlier_version_is_called_that(site):
    lesson_, older = (
        re.findall(r'<p class="label cuda">(.*?)</p>', site.document(f"lessons/{name}/").html)[0]
        for name in ("lesson", "older")
    )
    stamp = str(notebooks.Stamp(**STAMP | {"device": "A GPU"}))
    assert lesson_.strip() == f"Run on CUDA, too: {stamp}"
    assert older.strip() == f"Run on CUDA, too: {stamp} (by an earlier version)"
    assert str(notebooks.Stamp(**STAMP)) in site.document("ja/lessons/lesson/").html


def test_readers_download_the_notebook_in_their_language_knowing_where_package_and_pages_are(site):
    for folder, own in (("", "lesson.ipynb"), ("ja/", "lesson.ja.ipynb")):
        page = site.document(f"{folder}lessons/lesson/")
        links = [link for link in page.all("a") if "download" in link or link["href"].endswith("map.txt")]
        assert len(links) == 3
        for link in links:
            way = (site.folder / folder / "lessons" / "lesson" / link["href"]).resolve()
            assert way.is_file()
        notebook = downloaded(site, own)
        assert notebook["cells"][1]["source"] == 'SOURCE = "walks.whl"'
        assert f"]({ADDRESS}{folder}descent/#step)" in notebook["cells"][0]["source"]
        assert f"]({ADDRESS}{folder}#walks)" in notebook["cells"][0]["source"]
        assert f"]({ADDRESS}map.txt)" in notebook["cells"][0]["source"]
        assert "](older.ipynb)" in notebook["cells"][0]["source"]
    assert "散歩" in downloaded(site, "lesson.ja.ipynb")["cells"][0]["source"]
    assert not (site.folder / "ja" / "lessons" / "download").exists()
    assert downloaded(site, "older.ipynb")


def test_colab_opens_the_twin_in_the_language_of_the_page(site):
    for folder, own in (("", "lesson.ipynb"), ("ja/", "lesson.ja.ipynb")):
        links = [link["href"] for link in site.document(f"{folder}lessons/lesson/").all("a")]
        (colab,) = [link for link in links if "colab" in link]
        assert colab == f"https://colab.research.google.com/github/example/walks/blob/main/lessons/{own}"


@pytest.mark.parametrize(
    ("repo", "button"), [("https://gitlab.com/a/b", ""), ("", ""), ("https://github.com/a/b/", "github/a/b/blob/v1/")]
)
def test_there_is_a_button_for_colab_only_where_colab_finds_the_repository(tmp_path, repo, button):
    english, japanese = known = named({"en": "English", "ja": "日本語"})
    build = SimpleNamespace(root=tmp_path, languages=known)
    page = SimpleNamespace(file=SimpleNamespace(src_uri="lessons/lesson.ipynb"))
    for language in (english, japanese):
        site = SimpleNamespace(repo=repo, ref="v1", language=language)
        made = jupyter.context(page, None, build, site)
        wanted = f"https://colab.research.google.com/{button}lessons/lesson.ipynb"  # no twin is there
        assert made["colab"] == (wanted if button else "")


def test_the_same_sources_make_the_same_bytes_anywhere(site, whole, tmp_path):
    other = sources(tmp_path / "elsewhere")
    for path in whole.rglob("*"):
        if path.suffix in (".ipynb", ".po") and ".cache" not in path.parts:
            write(other, path.relative_to(whole).as_posix(), path.read_text(encoding="utf-8"))
    again = built(other, tmp_path / "new", **KNOWN)
    compared = [file for name in ("lessons", "ja/lessons", "search") for file in (site.folder / name).rglob("*.*")]
    assert len(compared) == 9
    for file in compared:
        assert (again.folder / file.relative_to(site.folder)).read_bytes() == file.read_bytes(), file


# mkdocs-jupyter beside the engine


@pytest.mark.parametrize("order", ["after", "before"])
def test_mkdocs_jupyter_executes_and_takes_nothing_but_is_told_what_to_say(small, order):
    """With its own defaults it takes every Python file below `docs`, and runs it while the site is built."""
    write(small, "docs/adam.py", '"""# Adam"""\nopen("EXECUTED.marker", "w").write("x")\n')
    write(
        small,
        "docs/page.md",
        "---\njupytext: {}\nkernelspec: {name: python3, language: python, display_name: P}\n---\n# Page\n",
    )
    ours = "  - annotate: {package: docs, languages: {en: English, ja: 日本語}, notebooks: lessons}\n"
    theirs = "  - mkdocs-jupyter: {execute: true}\n"
    first, second = (ours, theirs) if order == "after" else (theirs, ours)
    head = CONFIG.partition("plugins:\n")[0]
    write(small, "mkdocs.yml", f"{head}plugins:\n{first}{second}")
    save(small / "lessons" / "lesson.ipynb", lesson(text("top", "# A walk"), *CELLS[1:]))
    done = mkdocs("build", folder=small)
    assert done.returncode == 0, done.stderr
    assert not list(small.rglob("EXECUTED.marker"))
    site = Built(small / "site", done.stderr)
    for folder in ("", "ja/"):
        assert '<section class="row' in site.document(f"{folder}adam/").html
        assert re.search(r"<pre[^>]*>\s*True\s*</pre>", site.document(f"{folder}lessons/lesson/").html)
        assert "Not yet run on CUDA: these are the outputs of a CPU" in site.document(f"{folder}lessons/lesson/").html
        assert '<h1 id="page">' in site.document(f"{folder}page/").html
    assert len(re.findall(r'WARNING.*Write `include: \["\*\.ipynb"\]` below it\.', done.stderr)) == 1
    links = [link["href"] for link in site.document("lessons/lesson/").all("a")]
    assert not [link for link in links if "colab" in link]
    assert downloaded(site, "lesson.ipynb")["cells"][1]["source"] == 'SOURCE = ""'


def test_its_links_find_pages_wherever_they_are(small):
    (small / "docs").rename(small / "pages")
    write(small, "mkdocs.yml", CONFIG.replace("package: walk", "package: ./walk") + "docs_dir: pages\n")
    head = text("top", HEAD["source"].replace("../docs/", "../pages/").replace(", [on](older.ipynb)", ""))
    save(small / "lessons" / "lesson.ipynb", lesson(head, *CELLS[1:]))
    site = built(small, small / "site", **KNOWN)
    links = {link["href"] for link in site.document("lessons/lesson/").all("a")}
    assert {"../../descent/#step", "../../#walks", "../../map.txt"} <= links
    source = downloaded(site, "lesson.ipynb")["cells"][0]["source"]
    assert re.findall(r"\]\((.*?)\)", source) == [ADDRESS + "descent/#step", ADDRESS + "#walks", ADDRESS + "map.txt"]


def test_without_mkdocs_jupyter_a_sentence_says_what_to_add(small):
    write(small, "mkdocs.yml", CONFIG.partition("  - mkdocs-jupyter")[0])
    wanted = '`notebooks: lessons` needs mkdocs-jupyter: install it, and add `- mkdocs-jupyter: {include: ["*.ipynb"]}`'
    assert wanted in refused(small)


# What is refused


@pytest.mark.parametrize("place", ["lessons/lesson.ipynb", "docs/other.ipynb"])
def test_a_cell_that_failed_ends_the_build_in_a_sentence_with_its_line(small, place):
    path = save(small / place, lesson(HEAD, code("boom", "1 / 0", failed())))
    line = path.read_text(encoding="utf-8").partition('"code"')[0].count("\n") + 1
    assert f'{place}:{line}: the cell "boom" has failed (ValueError: boom); mend it, and run it again.' in refused(
        small
    )


def test_a_cell_that_fails_while_the_site_is_built_ends_the_build_and_is_named(small):
    write(small, "mkdocs.yml", CONFIG.replace('"*.ipynb"]', '"*.ipynb"], execute: true'))
    meant = code("meant", "1 / 0", count=None, tags=("raises-exception",))
    save(
        small / "docs" / "other.ipynb", lesson(HEAD, meant, code("boom", "x = 1\nraise ValueError('boom')", count=None))
    )
    error = refused(small)
    assert "other.ipynb: the cell that begins with `x = 1` fails (ValueError: boom)." in error
    assert not (small / "lessons" / "EXECUTED.marker").exists()


def test_a_notebook_that_is_no_lesson_fails_a_strict_build_and_no_other_page(small):
    save(small / "lessons" / "lesson.ipynb", lesson(code("run", "x")))
    save(small / "docs" / "draft.ipynb", lesson(code("boom", "1 / 0", failed())))  # is no part of the site
    write(small, "mkdocs.yml", CONFIG + "exclude_docs: draft.ipynb\n")
    done = mkdocs("build", "--strict", folder=small)
    assert done.returncode != 0
    assert "draft" not in done.stderr
    assert "lessons/lesson.ipynb:1: the first cell is no text that begins with `# ` and a title." in done.stderr
    assert "This page could not be made:" in (small / "site/lessons/lesson/index.html").read_text(encoding="utf-8")
    assert (small / "site/ja/descent/index.html").exists()


# Serving


def test_a_served_site_is_built_again_when_a_notebook_changes(small):
    options = languages.Options()
    options.load_dict({"package": "walk", "notebooks": "lessons"})
    options.validate()
    config = SimpleNamespace(theme=SimpleNamespace(custom_dir=None))
    assert str(small / "lessons") in languages.watched(small, options, config)
    options.load_dict({"notebooks": "nowhere"})
    assert languages.watched(small, options, config) == [str(small / "walk")]
