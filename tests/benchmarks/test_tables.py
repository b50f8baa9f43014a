"""No number of the site's tables is typed by hand: they are what the stored file gives, in every language."""

import re
from pathlib import Path

import pytest

from benchmarks import results, tables
from labml_opt._figures.words import languages
from labml_opt.figures import FIGURES

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "docs" / "guides" / name for name in ("measured.md", "measured.ja.md")]


@pytest.fixture(scope="module")
def stored():
    return results.load()


def test_the_stored_tables_are_those_of_the_stored_file(stored):
    made = tables.render(stored)
    assert {path.name for path in tables.FOLDER.iterdir()} == set(made)
    for name, text in made.items():
        assert (tables.FOLDER / name).read_text(encoding="utf-8") == text, "run `python3 tasks.py bench --tables`"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_page_takes_in_every_table_in_its_language(page):
    language = "ja" if page.name.endswith(".ja.md") else "en"
    taken = re.findall(r'--8<-- "(\S+)"', page.read_text(encoding="utf-8"))
    assert taken == [f"fast_ratios.{language}.svg", *(f"{name}.{language}.txt" for name in tables.TABLES)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_no_ratio_is_typed_into_the_page(page):
    assert not re.search(r"\d\.\d", page.read_text(encoding="utf-8"))


def test_a_table_has_as_many_cells_in_every_row(stored):
    for name, text in tables.render(stored).items():
        if not name.startswith("fast_origin"):
            assert len({line.count("|") for line in text.splitlines() if line.startswith("|")}) == 1, name


def test_the_numbers_are_the_same_in_both_languages(stored):
    made = tables.render(stored)
    for name in tables.TABLES:
        english, japanese = (re.findall(r"\d+\.\d+", made[f"{name}.{language}.txt"]) for language in ("en", "ja"))
        assert english == japanese


def test_the_catalogue_holds_the_words_of_the_tables_and_nothing_else_beside_those_of_figures(stored):
    catalogue = languages(ROOT / "locale")["ja"]
    assert {name: sorted(sentences) for name, sentences in catalogue.items() if name not in FIGURES} == {
        name: sorted(sentences) for name, sentences in tables.sentences(stored).items()
    }


def test_the_words_do_not_depend_on_what_was_measured(stored):
    nothing = {**stored, "results": [], "bandwidth": []}
    nothing["bars"] = [{**row, "measured": None} for row in stored["bars"]]
    reached = {
        **stored,
        "bars": [{**row, "measured": 1.0, "passed": True, "quartiles": [1, 1]} for row in stored["bars"]],
    }
    assert tables.sentences(nothing) == tables.sentences(stored) == tables.sentences(reached)


@pytest.mark.parametrize(("value", "written"), [(0.946, "0.95"), (9.5, "9.50"), (12.34, "12")])
def test_a_ratio_has_as_many_digits_as_can_be_believed(value, written):
    assert tables.number(value) == written


def test_a_figure_and_its_verdict_stand_in_the_row_of_their_bar(stored):
    rows = [dict(row) for row in stored["bars"]]
    row = next(row for row in rows if row["name"] == "fp16-1e6-500")
    row |= {"measured": 3.456, "quartiles": [3.4, 3.5], "passed": True, "pairs": 15}
    text = tables.bars({"bars": rows}, tables.Words("fast_bars"))
    group = text[text.index("**Beside `torch.optim.Adam(fused=True)` FP32**") :].partition("\n\n**")[0]
    assert "| `AdamFP16(fast=True)`<br>FP16, 10⁶ in 500 | **3.46**<br>(3.40–3.50) | 2 (3)<br>reached |" in group


def test_seconds_are_shown_as_a_part_of_what_is_allowed(stored):
    rows = [dict(row) for row in stored["bars"]]
    next(row for row in rows if row["name"] == "first-step-cold-4").update(measured=15.0, passed=True)
    text = tables.others({"bars": rows}, tables.Words("fast_others"))
    assert "| cold cache, 4 tensors | 0.75 | 20 s (10 s)<br>reached |" in text
