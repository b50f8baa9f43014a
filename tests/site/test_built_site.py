"""What every page of the built site keeps to, without a browser."""

import gzip
import html
import json
import posixpath
import re
import xml.etree.ElementTree as ET
from pathlib import Path
from urllib.parse import unquote, urljoin, urlsplit

import pytest
from building import ADDRESS, REPOSITORY, built

LANGUAGES = {"": "en", "ja/": "ja"}
MODULES = [
    "optimizer",
    "adam",
    "amsgrad",
    "adam_warmup",
    "noam",
    "adam_warmup_cosine_decay",
    "radam",
    "ada_belief",
    "sophia",
    "adam_fp16",
    "split_master",
]


def each_page(site):
    return [folder + page for folder in LANGUAGES for page in site.pages(folder)]


def targets(document):
    """Addresses that a page names in any element."""
    for tag, attrs in document.elements:
        for name in ("href", "src"):
            if name in attrs:
                yield tag, attrs, attrs[name]


def file_of(path: str) -> str:
    return path + "index.html" if not path or path.endswith("/") else path


@pytest.mark.parametrize("which", ["site", "plain_site"])
def test_every_link_leads_to_a_page_and_an_anchor_that_exist(which, request):
    site = request.getfixturevalue(which)
    broken = []
    for page in each_page(site):
        for _, _, target in targets(site.document(page)):
            parts = urlsplit(target)
            if parts.scheme or parts.netloc:
                continue
            path = posixpath.normpath(posixpath.join(page, parts.path)) if parts.path else page
            path = "" if path == "." else path + "/" if parts.path.endswith(("/", ".")) else path
            file = site.folder / unquote(file_of(path))
            if not file.is_file():
                broken.append(f"{page}: {target}")
            elif parts.fragment and file.suffix == ".html":
                there = site.document(file.relative_to(site.folder).as_posix())
                broken += [f"{page}: {target}: no such anchor"] * (unquote(parts.fragment) not in there.ids)
    assert not broken


@pytest.mark.parametrize("which", ["site", "plain_site"])
def test_no_link_leaves_the_folder_of_the_site(which, request):
    """So that it works below any sub-path of any static server."""
    site = request.getfixturevalue(which)
    for page in each_page(site):
        for tag, attrs, target in targets(site.document(page)):
            assert not target.startswith("/"), (page, tag, attrs)
            if not urlsplit(target).scheme:
                assert urljoin(f"https://host/a/b/{page}", target).startswith("https://host/a/b/"), (page, target)


def test_nothing_is_loaded_from_another_host(site):
    for page in each_page(site):
        for tag, attrs, target in targets(site.document(page)):
            loads = tag in ("img", "script", "iframe", "source") or (
                tag == "link" and "stylesheet" in attrs.get("rel", "")
            )
            assert not (loads and urlsplit(target).netloc), (page, target)
    for css in site.folder.rglob("*.css"):
        assert not re.search(r"url\(['\"]?(?:https?:)?//|@import", css.read_text(encoding="utf-8")), css


def test_what_the_stylesheets_load_is_there(site):
    for css in site.folder.rglob("*.css"):
        for target in re.findall(r"url\(['\"]?([^'\")]+)", css.read_text(encoding="utf-8")):
            if not target.startswith("data:"):
                assert (css.parent / target).is_file(), (css, target)


def test_each_page_has_a_twin_and_the_switch_leads_to_it(site, plain_site):
    """Its links are relative and lead to the same page, with and without the site's address."""
    for built_site in (site, plain_site):
        assert built_site.pages("") == built_site.pages("ja/")
        for folder, code in LANGUAGES.items():
            other = next(each for each in LANGUAGES if each != folder)
            for page in built_site.pages(folder):
                (link,) = [a for _, a in built_site.document(folder + page).elements if "data-language" in a]
                assert posixpath.normpath(posixpath.join(folder + page, link["href"])) == posixpath.normpath(
                    other + page
                )
                assert link["hreflang"] == link["lang"] == LANGUAGES[other] != code


def test_each_page_says_its_language(site):
    for folder, code in LANGUAGES.items():
        for page in site.pages(folder):
            assert [attrs["lang"] for attrs in site.document(folder + page).all("html")] == [code]


def test_the_navigation_is_translated_and_complete(site):
    for page in site.pages(""):
        names = {}
        for folder in LANGUAGES:
            nav = re.search(
                r'<details class="pop pages-list">.*?</details>', site.document(folder + page).html, re.DOTALL
            )[0]
            names[folder] = re.findall(r'class="label">([^<]+)<|<a href="([^"]+)"', nav)
        links = [[link for _, link in names[folder] if link] for folder in LANGUAGES]
        assert links[0] == links[1]
        assert len(links[0]) == len(site.pages(""))
        labels = [[label for label, _ in names[folder] if label] for folder in LANGUAGES]
        assert len(labels[0]) == len(labels[1]) == 4
        assert not set(labels[0]) & set(labels[1])


def test_nothing_is_left_in_english_unmarked_or_marked(site):
    """The build lists what isn't translated, rows included, and here it lists nothing."""
    assert "not translated" not in site.log
    for page in site.pages("ja/"):
        assert 'class="prose todo"' not in site.document("ja/" + page).html
        assert "untold" not in site.document("ja/" + page).html


def rows(page: str):
    return re.findall(r'<section class="row[^"]*" id="([^"]+)">(.*?)</section>', page, re.DOTALL)


def code_of(row: str) -> str:
    """Text of a row's code column, without its line numbers."""
    (pre,) = re.findall(r'<pre class="code highlight"[^>]*>(.*?)</pre>', row, re.DOTALL)
    pre = re.sub(r'<a class="ln".*?</a>', "", pre)
    return html.unescape(re.sub(r"<[^>]+>", "", pre))


@pytest.mark.parametrize("module", MODULES)
def test_both_languages_have_the_same_rows_code_and_equations(site, module):
    pages = [site.document(f"{folder}{module}/").html for folder in LANGUAGES]
    english, japanese = (rows(page) for page in pages)
    assert [anchor for anchor, _ in english] == [anchor for anchor, _ in japanese]
    assert [code_of(row) for _, row in english] == [code_of(row) for _, row in japanese]
    for (anchor, one), (_, other) in zip(english, japanese, strict=True):
        tex = [set(re.findall(r"<annotation[^>]*>(.*?)</annotation>", row, re.DOTALL)) for row in (one, other)]
        assert tex[0] == tex[1], anchor


@pytest.mark.parametrize("module", MODULES)
def test_the_code_column_is_the_source(site, project, module):
    """Every line of code stands under its own number, byte for byte."""
    source = (project / "labml_opt" / f"{module}.py").read_text(encoding="utf-8").split("\n")
    seen = []
    for _, row in rows(site.document(f"{module}/").html):
        numbers = [int(number) for number in re.findall(r'id="L(\d+)"', row)]
        lines = code_of(row).split("\n")[: len(numbers)]
        assert lines == [source[number - 1] for number in numbers]
        seen += numbers
    assert seen == sorted(set(seen))


def test_guides_have_the_same_anchors_in_both_languages(site):
    """The headings of a twin take the anchors of the English ones."""
    for page in site.pages(""):
        if page.startswith("guides/"):
            anchors = [
                [
                    a["id"]
                    for tag, a in site.document(folder + page).elements
                    if re.fullmatch("h[2-6]", tag) and "id" in a
                ]
                for folder in LANGUAGES
            ]
            assert anchors[0] == anchors[1] != []
            assert not [anchor for anchor in anchors[0] if re.fullmatch(r"_\d+", anchor)]


def test_every_figure_of_a_page_says_where_it_comes_from(site, project):
    """Device, version of torch and the command that draws it, for all to see."""
    for module in MODULES:
        for folder in LANGUAGES:
            page = site.document(f"{folder}{module}/").html
            figures = re.findall(r"<figure>.*?</figure>", page.partition("<dialog")[0], re.DOTALL)
            assert figures
            for figure in figures:
                (stamp,) = re.findall(r'<span class="stamp"><span>(.*?)</span>', figure)
                assert re.search(r"\b(?:CPU|GPU|NVIDIA)\b.*torch \d+\.\d+.*python -m labml_opt", stamp)


# Heads


def metas(document) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for attrs in document.all("meta"):
        found.setdefault(attrs.get("name") or attrs.get("property", ""), []).append(attrs.get("content", ""))
    return found


def test_heads_are_whole(site):
    seen = set()
    for folder, code in LANGUAGES.items():
        for page in site.pages(folder):
            document = site.document(folder + page)
            url = ADDRESS + folder + page
            title = re.search(r"<title>(.*?)</title>", document.html)[1]
            assert title.endswith("labml_opt") or not page
            assert (code, title) not in seen
            seen.add((code, title))
            assert [link["href"] for link in document.all("link", rel="canonical")] == [url]
            known = metas(document)
            for name in ("description", "og:title", "og:description", "og:type", "og:site_name", "og:url", "og:locale"):
                (content,) = known[name]
                assert content, (page, name)
            for name in ("twitter:card", "twitter:title", "twitter:description"):
                assert len(known[name]) == 1
            assert len(known["description"][0]) <= 160
            assert known["og:url"] == [url]
            assert known["og:locale"] == [{"en": "en_US", "ja": "ja_JP"}[code]]


def alternates(document):
    return [link for link in document.all("link") if link.get("rel", "").strip() == "alternate"]


def test_hreflang_links_are_symmetric_and_have_a_default(site):
    for folder in LANGUAGES:
        for page in site.pages(folder):
            links = {link["hreflang"]: link["href"] for link in alternates(site.document(folder + page))}
            assert links == {"en": ADDRESS + page, "ja": ADDRESS + "ja/" + page, "x-default": ADDRESS + page}


def test_the_card_of_a_page_is_a_picture_that_is_there(site):
    images = {metas(site.document(folder + "adam/"))["og:image"][0] for folder in LANGUAGES}
    assert len(images) == len(LANGUAGES)
    for image in images:
        assert image.startswith(ADDRESS)
        assert (site.folder / image.removeprefix(ADDRESS)).stat().st_size < 120_000
    assert metas(site.document(""))["twitter:card"] == ["summary_large_image"]


def test_without_an_address_nothing_pretends_to_know_it(plain_site):
    """No canonical, no hreflang, no sitemap, never localhost; one line of the build says so."""
    for page in each_page(plain_site):
        document = plain_site.document(page)
        assert not document.all("link", rel="canonical")
        assert not alternates(document)
        assert "og:url" not in metas(document)
        assert not re.search(r"localhost|127\.0\.0\.1", document.html.partition("</head>")[0])
    assert not list(plain_site.folder.rglob("sitemap*"))
    assert plain_site.log.count("`site_url` is not set") == 1


def test_each_language_has_a_sitemap_with_alternates(site):
    space = {"s": "http://www.sitemaps.org/schemas/sitemap/0.9", "x": "http://www.w3.org/1999/xhtml"}
    for folder in LANGUAGES:
        text = (site.folder / folder / "sitemap.xml").read_text(encoding="utf-8")
        assert "None" not in text
        listed = {}
        for url in ET.fromstring(text).findall("s:url", space):
            links = {link.get("hreflang"): link.get("href") for link in url.findall("x:link", space)}
            listed[url.find("s:loc", space).text] = links
        assert list(listed) == [ADDRESS + folder + page for page in listed_order(site, folder)]
        for location, links in listed.items():
            page = location.removeprefix(ADDRESS + folder)
            assert links == {"en": ADDRESS + page, "ja": f"{ADDRESS}ja/{page}", "x-default": ADDRESS + page}


def listed_order(site, folder):
    text = (site.folder / folder / "sitemap.xml").read_text(encoding="utf-8")
    order = [loc.removeprefix(ADDRESS + folder) for loc in re.findall("<loc>(.*?)</loc>", text)]
    assert sorted(order) == sorted(site.pages(folder))
    return order


def test_view_code_leads_to_the_file_and_its_lines(site, project):
    for module in MODULES:
        document = site.document(f"ja/{module}/")
        links = {a["href"] for a in document.all("a") if a.get("href", "").startswith(REPOSITORY)}
        file = f"{REPOSITORY}/blob/main/labml_opt/{module}.py"
        assert file in links
        lines = [int(link.partition("#L")[2]) for link in links if link.startswith(file + "#L")]
        assert lines
        assert max(lines) <= len((project / "labml_opt" / f"{module}.py").read_text(encoding="utf-8").split("\n"))


def test_without_a_repository_there_is_no_link_into_one(plain_site):
    for page in each_page(plain_site):
        assert "/blob/" not in plain_site.document(page).html
        assert not plain_site.document(page).all("a", class_="file")


# Search, 404, sizes


def index_of(site, folder: str):
    return json.loads((site.folder / folder / "search" / "search_index.json").read_text(encoding="utf-8"))


def test_each_language_has_its_own_search_index(site):
    """Its own language, every page once, every row that says something under its own anchor."""
    for folder in LANGUAGES:
        locations = [doc["location"] for doc in index_of(site, folder)["docs"]]
        assert len(locations) == len(set(locations))
        assert {each for each in locations if "#" not in each} == set(site.pages(folder))
        for module in MODULES:
            anchors = {each.partition("#")[2] for each in locations if each.startswith(f"{module}/#")}
            page = site.document(f"{folder}{module}/").html
            assert anchors == {anchor for anchor, row in rows(page) if text_in(row)}
    english, japanese = (" ".join(doc["text"] for doc in index_of(site, folder)["docs"]) for folder in LANGUAGES)
    assert not re.search("[\u3040-\u30ff]", english)
    assert len(re.findall("[\u3040-\u30ff]", japanese)) > 2000


def text_in(row: str) -> bool:
    return bool(re.sub(r"<[^>]+>|#|↗|\s", "", re.sub(r'<a class="(?:ln|hash|source)".*?</a>', "", row)))


def test_equations_stay_out_of_the_search_index(site):
    for folder in LANGUAGES:
        found = [doc["text"] for doc in index_of(site, folder)["docs"] if doc["location"].startswith("adam")]
        assert len(found) > 50
        assert not [text for text in found if re.search(r"\\(?:theta|frac|beta|hat)\b", text)]


def test_the_page_for_unknown_addresses_serves_every_language_and_loads_nothing(site, plain_site):
    for built_site, root in ((site, "/labml_opt/"), (plain_site, "/")):
        for folder, code in LANGUAGES.items():
            document = built_site.document(f"{folder}404.html")
            assert [a["lang"] for a in document.all("section")] == [
                code,
                *(each for each in LANGUAGES.values() if each != code),
            ]
            assert {a["href"] for a in document.all("a")} == {root, root + "ja/"}
            loaded = [attrs.get("src") or attrs.get("href") for tag, attrs in document.elements if tag != "a"]
            assert [target for target in loaded if target] == ["data:,"]


@pytest.mark.parametrize(("page", "limit"), [("adam", 20_000), ("ja/adam", 23_000)])
def test_the_annotated_page_of_adam_is_small(site, page, limit):
    """Japanese takes three bytes a character, and every page lists all the others."""
    assert len(gzip.compress((site.folder / page / "index.html").read_bytes(), 9)) < limit


def test_a_language_copies_no_file_that_the_others_have(site):
    files = {
        path.relative_to(site.folder / "ja").as_posix() for path in (site.folder / "ja").rglob("*") if path.is_file()
    }
    assert {file for file in files if not file.endswith("index.html")} == {
        "404.html",
        "sitemap.xml",
        "search/search_index.json",
    }


@pytest.fixture(scope="module")
def again(project, tmp_path_factory):
    """The published site, built once more, where neither torch nor the package can be imported."""
    folder = tmp_path_factory.mktemp("again")
    for name in ("torch", "labml_opt"):
        (folder / f"{name}.py").write_text(f"raise SystemExit('{name} was imported')\n", encoding="utf-8")
    given = {"SITE_URL": ADDRESS, "REPO_URL": REPOSITORY, "PYTHONPATH": str(folder)}
    return built(project, folder / "labml_opt", **given)


def test_two_builds_give_the_same_bytes(site, again):

    def contents(folder: Path):
        return {path.relative_to(folder): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}

    assert contents(again.folder) == contents(site.folder)


def test_building_imports_neither_torch_nor_the_package(again):
    """Or that build would have failed."""
    assert again.pages() == again.pages("ja/")
