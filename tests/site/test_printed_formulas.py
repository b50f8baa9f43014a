"""The equations that `tests/labml_opt/test_formulas.py` carries out are the ones that the site shows."""

import html
import re
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "labml_opt"))

from printed import PRINTED, display_equations, plain


def shown(site, address: str) -> list[str]:
    """The TeX of the display equations of a built page, as its authors wrote it."""
    page = site.document(address).html
    displays = re.findall(r'<math[^>]*display="block"[^>]*>.*?</math>', page, re.DOTALL)
    return [plain(html.unescape(re.search(r"<annotation[^>]*>(.*?)</annotation>", d, re.DOTALL)[1])) for d in displays]


@pytest.mark.parametrize("language", ["", "ja/"])
@pytest.mark.parametrize(("page", "name"), [(page, name) for page, names in PRINTED.items() for name in names])
def test_the_page_shows_the_equation_that_was_carried_out(site, page, name, language):
    assert PRINTED[page][name] in shown(site, f"{language}{page}/")


@pytest.mark.parametrize("language", ["", "ja/"])
@pytest.mark.parametrize("page", PRINTED)
def test_the_page_shows_each_display_equation_of_its_source_once_and_in_its_order(site, page, language):
    assert shown(site, f"{language}{page}/") == display_equations(page)
