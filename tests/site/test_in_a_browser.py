"""Journeys of a reader through the site, in a real Chromium, below a sub-path of a plain static server."""

import gzip
import re
from pathlib import Path
from urllib.parse import unquote

import pytest
from building import ROOT, Reader

PAGES = ["", "adam_fp16/", "adam_warmup_cosine_decay/", "guides/half_precision/", "guides/annotate/"]
EVERY_PAGE = [folder + page for folder in ("", "ja/") for page in PAGES]
AXE = ROOT / "node_modules" / "axe-core" / "axe.min.js"


def top_of(page, selector: str) -> float:
    return page.locator(selector).first.evaluate("el => el.getBoundingClientRect().top")


# Languages


@pytest.mark.parametrize(("start", "end", "name"), [("", "ja/", "日本語"), ("ja/", "", "English")])
def test_switching_language_stays_on_page_and_section(reader, start, end, name):
    page = reader.open(f"{start}adam_fp16/#AdamFP16")
    page.get_by_role("link", name=name, exact=True).click()
    page.wait_for_url(f"**/{end}adam_fp16/#AdamFP16")
    assert 0 <= top_of(page, '[id="AdamFP16"]') < 200
    page.go_back()
    page.wait_for_url(f"**/{start}adam_fp16/#AdamFP16")


def test_switching_language_stays_where_the_reader_has_scrolled_to(reader):
    page = reader.open("adam_fp16/")
    page.evaluate("document.getElementById('GradScalerFP16.unscale_').scrollIntoView()")
    page.get_by_role("link", name="日本語", exact=True).click()
    page.wait_for_url("**/ja/adam_fp16/#*")
    assert unquote(page.url).partition("#")[2].startswith("GradScalerFP16")


def test_switching_language_of_a_guide_stays_on_its_section(reader):
    page = reader.open("guides/half_precision/")
    anchor = page.locator(".page h2[id]").nth(1).get_attribute("id")
    page.evaluate("id => document.getElementById(id).scrollIntoView()", anchor)
    page.get_by_role("link", name="日本語", exact=True).click()
    page.wait_for_url(f"**/ja/guides/half_precision/#{anchor}")


def test_back_returns_to_the_row_and_a_line_can_be_linked(reader):
    page = reader.open("adam_fp16/")
    page.locator("a.ln").nth(30).click()
    assert re.search(r"#L\d+$", page.url)
    line = page.url.rpartition("#")[2]
    background = page.locator(f"#{line}").evaluate("el => getComputedStyle(el).backgroundColor")
    assert background not in ("rgba(0, 0, 0, 0)", "transparent")
    page.locator(".turn a[rel=prev]").click()
    page.wait_for_url(lambda url: "/adam_fp16/" not in url)
    page.go_back()
    page.wait_for_url(f"**/adam_fp16/#{line}")


# Search


@pytest.mark.parametrize(
    ("start", "query", "found"),
    [
        ("", "step_param", "adam_fp16/"),
        ("", "step_param", "optimizer/"),
        ("", "bias correction", "adam/"),
        ("", "Attempting to unscale FP16 gradients", "guides/half_precision/"),
        ("ja/", "損失スケーリング", "ja/adam_fp16/"),
        ("ja/", "バイアス補正", "ja/adam/"),
        ("ja/", "step_param", "ja/adam_fp16/"),
        ("ja/", "学習率スケジュール", "ja/adam_warmup_cosine_decay/"),
        ("ja/", "重み減衰", "ja/optimizer/"),
    ],
)
def test_the_search_finds(reader, start, query, found):
    links = reader.open(start) and reader.search(query)
    addresses = links.evaluate_all("all => all.map(a => a.href)")
    assert any(address.partition("#")[0] == reader.address + found for address in addresses), addresses
    assert not [address for address in addresses if address.startswith(reader.address + "ja/") != (start == "ja/")]


def test_a_result_leads_to_its_row(reader):
    page = reader.open("ja/")
    link = reader.search("step_param").and_(page.locator('[href*="#"]')).first
    target = link.evaluate("a => a.href")
    link.click()
    page.wait_for_url(target)
    assert not reader.searching
    assert page.locator(f'[id="{unquote(target.partition("#")[2])}"]').count() == 1


def test_a_compound_is_found_also_where_a_particle_splits_it(reader):
    reader.open("ja/")
    assert reader.search("勾配をスケーリング").count()


def test_the_search_works_from_the_keyboard_alone(reader):
    page = reader.open("adam/")
    links = reader.search("warm-up")
    links.first.wait_for()
    page.keyboard.press("ArrowDown")
    assert page.evaluate("document.activeElement.href") == links.first.evaluate("a => a.href")
    page.keyboard.press("ArrowDown")
    assert page.evaluate("document.activeElement.closest('.md-search-result__item, .md-search-result__list') !== null")
    assert page.evaluate("document.activeElement.href") != links.first.evaluate("a => a.href")
    page.keyboard.press("Escape")
    assert not reader.searching
    reader.search("AMSGrad")
    page.keyboard.press("Enter")
    page.wait_for_url("**/amsgrad/**")


def test_what_is_not_there_is_not_found_and_that_is_said(reader):
    reader.open("ja/")
    assert reader.search("xyzzyqqq").count() == 0
    assert reader.page.locator(".md-search-result__meta").inner_text() == "何も見つかりませんでした"


# Symbols


def lit(page) -> list[str]:
    return page.locator(".lit").evaluate_all("all => all.map(el => el.className)")


def slot(classes: str) -> str:
    return re.search(r"\by\d\b", classes)[0]


def on_both_sides(page) -> str:
    """A symbol that stands in equations and in code."""
    sides = [set(page.locator(css).evaluate_all(SLOTS)) for css in (".rows .katex .sym", ".code .sym")]
    return sorted(sides[0] & sides[1])[0]


SLOTS = "all => all.map(el => el.className.match(/\\by\\d\\b/)[0])"


@pytest.mark.parametrize("side", [".rows .katex", ".code"])
def test_a_symbol_lights_up_in_equations_and_code_from_either_side(reader, side):
    page = reader.open("adam_fp16/")
    mine = on_both_sides(page)
    page.locator(f"{side} .sym.{mine}").first.click()
    assert {slot(classes) for classes in lit(page)} == {mine}
    assert page.locator(f".rows .katex .sym.{mine}.lit").count()
    assert page.locator(f".code .sym.{mine}.lit").count()
    assert page.locator(f".sym.{mine}:not(.lit)").count() == 0
    page.mouse.move(0, 0)
    assert lit(page)
    page.keyboard.press("Escape")
    assert not lit(page)


def test_a_chip_lights_a_symbol_from_the_keyboard(reader):
    page = reader.open("adam_fp16/")
    mine = on_both_sides(page)
    chip = page.locator(f".chips .chip.{mine}")
    chip.focus()
    page.keyboard.press("Enter")
    assert chip.get_attribute("aria-pressed") == "true"
    assert {slot(classes) for classes in lit(page)} == {mine}
    page.keyboard.press("Enter")
    assert chip.get_attribute("aria-pressed") == "false"


def test_the_table_of_symbols_opens_and_closes(reader):
    page = reader.open("adam_fp16/")
    page.get_by_text("Symbols", exact=True).click()
    assert page.locator(".syms").is_visible()
    assert page.locator(".syms tbody tr, .syms > tr").count() >= 5
    page.keyboard.press("Escape")
    assert not page.locator(".syms").is_visible()


# Reading


def test_the_outline_leads_to_a_row_and_the_bar_says_where_the_reader_is(reader):
    page = reader.open("adam_fp16/")
    page.get_by_text("Outline", exact=True).click()
    page.locator(".bar .pop a", has_text="unscale_").first.click()
    page.wait_for_url("**/adam_fp16/#GradScalerFP16.unscale_")
    page.wait_for_function("document.querySelector('[data-where]').textContent === 'GradScalerFP16 › unscale_'")
    assert top_of(page, '[id="GradScalerFP16.unscale_"]') >= page.locator(".bar").evaluate(
        "el => el.getBoundingClientRect().bottom - 1"
    )


def test_code_beside_long_prose_stays_in_view(reader):
    page = reader.open("adam_fp16/")
    index = page.evaluate(
        """() => [...document.querySelectorAll(".row")].findIndex(row => {
            const code = row.querySelector(".code code")
            return code && row.clientHeight > 500 && code.clientHeight < 200
        })"""
    )
    assert index >= 0, "no row here has prose that is much longer than its code"
    row = page.locator(".row").nth(index)
    row.evaluate("el => scrollTo(0, el.getBoundingClientRect().top + scrollY + el.clientHeight - 420)")
    box, bar = row.locator(".code code").bounding_box(), page.locator(".bar").bounding_box()
    assert box["y"] >= bar["y"] + bar["height"]
    assert box["y"] + box["height"] <= 900


def test_a_figure_opens_large_and_closes(reader):
    page = reader.open("adam_fp16/")
    link = page.locator("a.zoom").first
    small = link.locator("svg").bounding_box()
    link.click()
    dialog = page.locator("dialog.large")
    assert dialog.locator("svg").bounding_box()["width"] > 1.3 * small["width"]
    page.keyboard.press("Escape")
    assert not dialog.is_visible()
    page.wait_for_function("document.activeElement.matches('a.zoom')")  # the dialog says a little later that it closed


@pytest.mark.parametrize("reader", [{"viewport": {"width": 390, "height": 800}}], indirect=True)
def test_no_figure_becomes_smaller_when_it_opens_large_on_a_narrow_screen(reader):
    page = reader.open("adam_fp16/")
    for width, height in ((390, 800), (800, 390), (1024, 768)):
        reader.resize(width, height)
        links = page.locator("a.zoom")
        for number in range(links.count()):
            link = links.nth(number)
            small = link.locator("svg").bounding_box()
            link.click(position={"x": 20, "y": 20})
            large = page.locator("dialog.large svg").bounding_box()
            assert large["width"] >= small["width"] - 0.1
            assert large["height"] >= small["height"] - 0.1
            if width < 960:
                assert large["width"] >= width
            assert page.locator("dialog.large button").bounding_box()["x"] < width
            page.keyboard.press("Escape")


def brightness(page) -> int:
    paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
    return sum(map(int, re.findall(r"\d+", paper)[:3]))


def test_dark_is_dark_and_is_remembered_in_every_language(reader):
    page = reader.open("adam_fp16/")
    assert brightness(page) > 600
    page.locator("label[title='Light or dark']:visible").click()
    assert brightness(page) < 150
    page.get_by_role("link", name="日本語", exact=True).click()
    page.wait_for_url("**/ja/adam_fp16/**")
    assert brightness(page) < 150


WITHOUT_SCRIPTS = {"color_scheme": "dark", "java_script_enabled": False}


@pytest.mark.parametrize("reader", [{"color_scheme": "dark"}, WITHOUT_SCRIPTS], indirect=True)
def test_the_system_decides_about_dark_until_the_reader_does(reader):
    page = reader.open("")
    assert brightness(page) < 150


@pytest.mark.parametrize("reader", [{"java_script_enabled": False}], indirect=True)
def test_everything_can_be_read_without_scripts(reader):
    page = reader.open("ja/adam_fp16/")
    assert page.locator(".katex").count() > 20
    page.locator(".pages-list summary").click()
    page.locator('.pages-list a[href*="adam_warmup_cosine_decay"]').click()
    page.wait_for_url("**/ja/adam_warmup_cosine_decay/")
    page.locator(".bar .pop summary").first.click()
    assert page.locator(".bar .pop li a").first.is_visible()
    assert not page.locator(".md-search__input").is_visible()


def test_an_equation_is_set_once_and_stays_after_back(reader):
    """No script sets equations, so none can forget to."""
    page = reader.open("adam/")
    count = page.locator(".katex-html").count()
    assert count == page.locator(".katex").count() > 10
    assert "$" not in re.sub(
        r"\s", "", page.locator(".rows .prose").evaluate_all("all => all.map(el => el.innerText).join()")
    )
    page.get_by_role("link", name="日本語", exact=True).click()
    page.wait_for_url("**/ja/adam/**")
    page.go_back()
    page.wait_for_url(f"{reader.address}adam/**")
    assert page.locator(".katex-html").count() == count


# Widths


@pytest.mark.parametrize("name", EVERY_PAGE)
def test_no_page_scrolls_sideways(reader, name):
    page = reader.open(name)
    for width in (360, 390, 768, 1280, 1366, 1440, 1536, 1600, 1920):
        reader.resize(width, 800)
        assert page.evaluate("document.documentElement.scrollWidth") <= width, width


@pytest.mark.parametrize("reader", [{"viewport": {"width": 360, "height": 740}, "has_touch": True}], indirect=True)
def test_a_phone_shows_code_below_its_prose_and_finds_its_way(reader):
    page = reader.open("ja/adam_fp16/")
    row = page.locator(".row:has(.code code):has(.prose p)").first
    prose, code = row.locator(".prose").bounding_box(), row.locator(".code").bounding_box()
    assert code["y"] >= prose["y"] + prose["height"]
    assert code["x"] == 0
    assert code["width"] <= 360
    wide = page.locator(".code code").evaluate_all("all => all.filter(el => el.scrollWidth > el.clientWidth).length")
    assert wide, "no code is wider than a phone, so nothing shows that it scrolls inside itself"
    page.locator(".md-header label[for=__drawer]").tap()
    page.locator('.md-sidebar a[href$="/adam/"]').tap()
    page.wait_for_url("**/ja/adam/")
    assert not reader.searching
    page.locator(".md-header label[for=__search]").first.tap()
    page.wait_for_function("document.activeElement.matches('.md-search__input')")  # a tap becomes a click later
    assert reader.searching
    assert page.locator(".md-search__input").is_visible()


# Sizes and hosts


def first_visit(reader, name: str) -> int:
    """Bytes of all that a first visit loads, as a server sends them: gzipped, what is compressed already as it is."""
    loaded = {}
    reader.page.on("response", lambda response: loaded.update({response.url: response}))
    reader.open(name)
    reader.page.wait_for_load_state("networkidle")
    bodies = {url: response.body() for url, response in loaded.items()}  # each is waited for
    assert len(bodies) > 3
    return sum(len(body) if url.endswith("woff2") else len(gzip.compress(body, 9)) for url, body in bodies.items())


@pytest.mark.parametrize("name", ["", "adam/", "adam_fp16/", "ja/", "ja/adam_fp16/"])
def test_a_first_visit_is_light(reader, name):
    assert first_visit(reader, name) < 250_000


# Everyone can read it


WIDE = [(name, 1440, scheme) for name in ("", "adam_fp16/", "guides/half_precision/") for scheme in ("light", "dark")]
OTHERS = [("ja/", 390, "light"), ("ja/adam_warmup_cosine_decay/", 390, "dark"), ("ja/guides/annotate/", 390, "light")]


@pytest.mark.parametrize(("name", "width", "scheme"), WIDE + OTHERS)
def test_axe_finds_nothing_serious(chromium, address, name, width, scheme):
    """With every popover open and every symbol lit, and again in the search."""
    reader = Reader(chromium, address, viewport={"width": width, "height": 900}, color_scheme=scheme)
    try:
        page = reader.open(name)
        page.add_script_tag(path=str(AXE))
        page.evaluate("document.querySelectorAll('.sym').forEach(el => el.classList.add('lit'))")
        page.evaluate("document.querySelectorAll('.pop').forEach(el => el.open = true)")
        assert not violations(page)
        assert reader.search("Adam").count()
        assert not violations(page, ".md-search")
    finally:
        reader.context.close()
    assert not reader.wrong


def violations(page, part: str = "html") -> list[str]:
    found = page.evaluate("async part => (await axe.run(part, {resultTypes: ['violations']})).violations", part)
    return [
        f"{each['id']} ({each['impact']}): {node['target']} {node['failureSummary']}"
        for each in found
        if each["impact"] in ("serious", "critical")
        for node in each["nodes"]
    ]


def test_the_page_for_unknown_addresses_is_readable_to_everyone(reader):
    page = reader.open("404.html")
    page.add_script_tag(path=str(AXE))
    assert not violations(page)


# Printed, and from a disk


def test_print_turns_light_and_shows_prose_and_code(reader):
    page = reader.open("adam_fp16/")
    page.locator("label[title='Light or dark']:visible").click()
    assert brightness(page) < 150
    page.emulate_media(media="print")
    assert brightness(page) > 600
    assert not page.locator(".md-header").is_visible()
    assert page.locator(".row .code code").first.is_visible()
    assert page.locator(".syms").is_visible()


def test_the_site_can_be_read_from_a_disk(chromium, site):
    """Save the search, whose index no browser lets a script read there."""
    reader = Reader(chromium, f"{Path(site.folder).as_uri()}/")
    try:
        page = reader.open("index.html")
        page.locator(".pages a").first.click()
        page.wait_for_url("**/optimizer/index.html")
        page.get_by_role("link", name="日本語", exact=True).click()
        page.wait_for_url("**/ja/optimizer/index.html*")
        assert page.locator(".rows .katex").first.is_visible()
    finally:
        reader.context.close()
    assert not [each for each in reader.wrong if "search/search_index.json" not in each]
