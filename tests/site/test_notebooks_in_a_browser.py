"""The page of a notebook as a reader meets it: in both languages, light and dark, wide and narrow."""

import gzip
import json
import re
from pathlib import Path

import nbformat
import pytest
from building import ROOT, Reader

NAME = "half_precision_training"
PAGE = f"notebooks/{NAME}/"
LANGUAGES = ["", "ja/"]
AXE = ROOT / "node_modules" / "axe-core" / "axe.min.js"
DRAWINGS = ".jp-OutputArea-output svg"
NOT_ON_CUDA = {"": "Not yet run on CUDA", "ja/": "CUDAでは未実行"}


def stored(language: str = ""):
    ending = {"": ".ipynb", "ja/": ".ja.ipynb"}[language]
    return json.loads((ROOT / "notebooks" / f"{NAME}{ending}").read_text(encoding="utf-8"))


def cells(kind: str, language: str = ""):
    return [cell for cell in stored(language)["cells"] if cell["cell_type"] == kind]


# Everyone can read it


LOOKS = [("", "light", 1440), ("ja/", "dark", 1440), ("", "dark", 390), ("ja/", "light", 390)]


@pytest.mark.parametrize(("language", "scheme", "width"), LOOKS)
def test_everyone_can_read_it(chromium, address, language, scheme, width):
    """No error, nothing from another host, nothing that axe finds serious, no sideways scroll, text that stands out."""
    reader = Reader(chromium, address, viewport={"width": width, "height": 900}, color_scheme=scheme)
    try:
        page = reader.open(language + PAGE)
        page.evaluate("document.querySelectorAll('.cell details').forEach(el => el.open = true)")
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        contrasts = page.evaluate(CONTRASTS, DRAWINGS)
        assert len(contrasts) > 40
        assert min(contrasts) >= 4.5
        page.add_script_tag(path=str(AXE))
        found = page.evaluate("async () => (await axe.run('html', {resultTypes: ['violations']})).violations")
        assert not [(each["id"], each["nodes"][0]["target"]) for each in found if each["impact"] in SERIOUS]
        page.wait_for_load_state("networkidle")
    finally:
        reader.context.close()
    assert not reader.wrong


SERIOUS = ("serious", "critical")
CONTRASTS = """css => {
    const numbers = color => (color.match(/[\\d.]+/g) || []).map(Number)
    const seen = color => numbers(color)[3] !== 0
    const light = color => {
        const [r, g, b] = numbers(color).slice(0, 3).map(part => part / 255)
            .map(part => part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4)
        return 0.2126 * r + 0.7152 * g + 0.0722 * b
    }
    const paper = el => {
        while (el && !seen(getComputedStyle(el).backgroundColor)) el = el.parentElement
        return getComputedStyle(el || document.body).backgroundColor
    }
    return [...document.querySelectorAll(`${css} text`)].map(text => {
        const pair = [light(getComputedStyle(text).fill), light(paper(text.closest("svg")))].sort((a, b) => b - a)
        return (pair[0] + 0.05) / (pair[1] + 0.05)
    })
}"""


def test_the_ink_of_a_drawing_is_another_one_in_the_dark(reader):
    page = reader.open(PAGE)
    inks = f"[...document.querySelectorAll('{DRAWINGS} text')].map(text => getComputedStyle(text).fill)"
    light = page.evaluate(inks)
    page.locator("label[title='Light or dark']:visible").click()
    page.wait_for_function(f"{inks}[0] !== '{light[0]}'")
    dark = page.evaluate(inks)
    assert len(light) == len(dark) > 40
    assert not set(light) & set(dark)


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_figure_has_a_name_in_the_language_of_its_page(reader, language):
    """It is the caption, which the notebook has as a Markdown cell."""
    page = reader.open(language + PAGE)
    captions = [
        "".join(cell["source"]) for cell in cells("markdown", language) if "caption" in cell["metadata"].get("tags", ())
    ]
    assert captions
    figures = page.get_by_role("img").and_(page.locator(DRAWINGS))
    assert figures.count() == page.locator(DRAWINGS).count() == len(captions)
    for number, caption in enumerate(captions):
        named = page.get_by_role("img", name=re.compile(re.escape(bare(caption)[:30])))
        assert named.count() == 1, caption
        assert figures.nth(number).evaluate("el => el.id || el.getAttribute('aria-labelledby')")
    assert bool(re.search("[\u3040-\u30ff]", captions[0])) == (language == "ja/")


def bare(markdown: str) -> str:
    return re.sub(r"[`*]", "", markdown)


# Using it


def test_folded_code_opens_and_closes_from_the_keyboard(reader):
    page = reader.open(PAGE)
    folded = page.locator(".cell details")
    hidden = [cell for cell in cells("code") if "hide-input" in cell["metadata"].get("tags", ())]
    assert folded.count() == len(hidden) > 0
    assert not folded.first.locator("pre").is_visible()
    folded.first.locator("summary").focus()
    page.keyboard.press("Enter")
    assert folded.first.locator("pre").is_visible()
    page.keyboard.press("Space")
    assert not folded.first.locator("pre").is_visible()


@pytest.mark.parametrize("language", LANGUAGES)
def test_it_can_be_downloaded_in_both_languages(reader, language, tmp_path):
    """What arrives is the notebook with its outputs; its links lead to the site."""
    page = reader.open(language + PAGE)
    links = page.locator("a[download]")
    assert links.count() == len(LANGUAGES)
    for number, which in enumerate(LANGUAGES):
        with page.expect_download() as waiting:
            links.nth(number).click()
        path = tmp_path / waiting.value.suggested_filename
        waiting.value.save_as(path)
        assert path.name == f"{NAME}{'.ja' * bool(which)}.ipynb"
        nbformat.validate(nbformat.read(path, as_version=nbformat.NO_CONVERT))
        mine = json.loads(path.read_text(encoding="utf-8"))
        assert [cell for cell in mine["cells"] if cell["cell_type"] == "code"] == cells("code", which)
        written = "".join(line for cell in mine["cells"] if cell["cell_type"] == "markdown" for line in cell["source"])
        targets = re.findall(r"\]\(([^)]+)\)", written)
        assert targets
        assert all(target.startswith("https://") for target in targets)
        own = [target for target in targets if target.startswith("https://example.org/labml_opt/")]
        assert own
        assert all(target.startswith(f"https://example.org/labml_opt/{which}") for target in own)


def test_a_wide_output_and_wide_code_scroll_inside_themselves_on_a_phone(chromium, address):
    reader = Reader(chromium, address, viewport={"width": 390, "height": 800})
    try:
        page = reader.open(PAGE)
        wide = "all => all.filter(el => el.scrollWidth > el.clientWidth + 1).map(el => getComputedStyle(el).overflowX)"
        for css in (
            ".cell pre.highlight, .cell pre.highlight code",
            ".jp-OutputArea-output, .jp-OutputArea-output pre",
        ):
            inside = page.locator(css).evaluate_all(wide)
            assert inside
            assert set(inside) <= {"auto", "scroll"}
    finally:
        reader.context.close()


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_language_switch_keeps_the_section(reader, language):
    page = reader.open(language + PAGE)
    anchor = page.locator(".page h2[id]").nth(4).get_attribute("id")
    page.evaluate("id => document.getElementById(id).scrollIntoView()", anchor)
    other = {"": ("日本語", "ja/"), "ja/": ("English", "")}[language]
    page.get_by_role("link", name=other[0], exact=True).first.click()
    page.wait_for_url(f"**/{other[1]}{PAGE}#{anchor}")


# Finding it


@pytest.mark.parametrize(
    ("language", "query"), [("", "loss of the last batch"), ("", "master weights"), ("ja/", "手書き数字")]
)
def test_the_search_finds_it(reader, language, query):
    reader.open(language)
    found = reader.search(query).evaluate_all("all => all.map(a => a.href)")
    assert any(target.startswith(reader.address + language + PAGE) for target in found), found


@pytest.mark.parametrize("language", LANGUAGES)
def test_its_text_is_in_the_index_and_its_prompts_and_drawings_are_not(site, language):
    index = json.loads((site.folder / language / "search" / "search_index.json").read_text(encoding="utf-8"))
    docs = [doc for doc in index["docs"] if doc["location"].startswith(PAGE)]
    headings = [cell for cell in cells("markdown", language) if "".join(cell["source"]).startswith("## ")]
    assert len(docs) > len(headings)
    text = " ".join(doc["text"] for doc in docs)
    said = next(cell for cell in cells("markdown", language) if cell["id"] == "lost-said")
    assert bare(said["source"][0])[2:30] in re.sub("<[^>]+>", "", text)
    shown = site.document(language + PAGE).html
    prompts = re.findall(r"jp-InputPrompt[^>]*>(\[\d+\])", shown)
    assert len(prompts) == len(cells("code"))
    assert not [prompt for prompt in prompts if re.search(rf"(?<![\w)\]]){re.escape(prompt)}", text)]
    assert "In [" not in text
    assert not re.search(r"<svg|rdf:|\bclip-path\b", text)


# Its size, and what it says of itself


@pytest.mark.parametrize("language", LANGUAGES)
def test_it_is_light(site, language):
    page = site.document(language + PAGE).html
    assert len(gzip.compress(re.sub(r"<svg.*?</svg>", "", page, flags=re.DOTALL).encode(), 9)) < 30_000
    assert len(gzip.compress(page.encode(), 9)) < 60_000
    assert "<style" not in re.sub(r"<svg.*?</svg>", "", page.partition("<main")[2], flags=re.DOTALL)


@pytest.mark.parametrize("language", LANGUAGES)
def test_it_says_where_it_ran_and_whether_on_cuda(site, language):
    page = site.document(language + PAGE).html
    stamp = stored()["metadata"]["stamp"]
    assert f"{stamp['device']}, torch {stamp['torch']}, Python {stamp['python']}, seed {stamp['seed']}" in page
    on_cuda = Path(ROOT, "notebooks", f"{NAME}.cuda.ipynb").exists()
    assert (NOT_ON_CUDA[language] in page) is not on_cuda
