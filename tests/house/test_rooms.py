"""One name leads through the house, from a module or a notebook to its page, its catalogue and its test."""

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from mkdocs.utils.yaml import yaml_load

import labml_opt

ROOT = Path(__file__).parents[2]
NOT_TAUGHT = {"figures"}  # draws the pages' figures
MODULES = [path.relative_to(ROOT / "labml_opt").with_suffix("") for path in (ROOT / "labml_opt").rglob("*.py")]
TAUGHT = sorted(
    module.as_posix()
    for module in MODULES
    if not any(part.startswith("_") for part in module.parts) and module.as_posix() not in NOT_TAUGHT
)
NOTEBOOKS = sorted(path.stem for path in (ROOT / "notebooks").glob("*.ipynb") if "." not in path.stem)
# They need more than torch, or explain what a class does inside.
IMPORTED_BY_THEIR_OWN_NAMES = {"configs", "experiments/digits", "split_master"}
TRACKED = [
    ROOT / name
    for name in subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split("\0")
    if name and (ROOT / name).exists()
]


def pages(nav: object) -> Iterator[str]:
    """The pages of a navigation, in reading order."""
    if isinstance(nav, str):
        yield nav
    elif isinstance(nav, dict):
        nav = list(nav.values())
    if isinstance(nav, list):
        for part in nav:
            yield from pages(part)


@pytest.fixture(scope="module")
def reading_order() -> list[str]:
    """The taught modules, in the order of the site's navigation."""
    with open(ROOT / "mkdocs.yml", encoding="utf-8") as file:
        return [
            page.removesuffix(".md") for page in pages(yaml_load(file)["nav"]) if page.removesuffix(".md") in TAUGHT
        ]


@pytest.mark.parametrize("module", TAUGHT)
def test_a_taught_module_has_a_page_in_the_navigation(module, reading_order):
    assert reading_order.count(module) == 1


@pytest.mark.parametrize("module", TAUGHT)
def test_a_taught_module_has_a_catalogue(module):
    assert (ROOT / "locale" / "ja" / f"{module}.po").is_file()


@pytest.mark.parametrize("module", TAUGHT)
def test_a_taught_module_has_a_test(module):
    assert (ROOT / "tests" / "labml_opt" / f"test_{module.replace('/', '_')}.py").is_file()


@pytest.mark.parametrize("module", [module for module in TAUGHT if module not in IMPORTED_BY_THEIR_OWN_NAMES])
def test_a_taught_module_has_a_public_name(module):
    assert f"labml_opt.{module}" in {getattr(labml_opt, name).__module__ for name in labml_opt.__all__}


@pytest.mark.parametrize("notebook", NOTEBOOKS)
def test_a_notebook_has_a_page_in_the_navigation_a_catalogue_a_twin_and_a_test(notebook):
    with open(ROOT / "mkdocs.yml", encoding="utf-8") as file:
        assert list(pages(yaml_load(file)["nav"])).count(f"notebooks/{notebook}.ipynb") == 1
    assert (ROOT / "locale" / "ja" / f"{notebook}.po").is_file()
    assert (ROOT / "notebooks" / f"{notebook}.ja.ipynb").is_file()
    assert (ROOT / "tests" / "notebooks" / f"test_{notebook}.py").is_file()


def test_nothing_is_left_of_a_module_or_a_notebook_that_is_gone():
    folder = ROOT / "locale" / "ja"
    catalogues = {path.relative_to(folder).with_suffix("").as_posix() for path in folder.rglob("*.po")}
    assert catalogues - {"site", "figures"} == {*TAUGHT, *NOTEBOOKS}
    assert {path.name.split(".")[0] for path in (ROOT / "notebooks").glob("*.ipynb")} == set(NOTEBOOKS)


def test_no_notebook_is_named_like_a_module():
    """Their catalogues lie in one folder."""
    assert NOTEBOOKS
    assert not set(NOTEBOOKS) & set(TAUGHT)


def test_the_order_of_the_public_names_is_the_reading_order(reading_order):
    modules = [getattr(labml_opt, name).__module__.removeprefix("labml_opt.") for name in labml_opt.__all__]
    assert list(dict.fromkeys(modules)) == [page for page in reading_order if page not in IMPORTED_BY_THEIR_OWN_NAMES]


@pytest.mark.parametrize("name", ["CHANGELOG.md", "pyproject.toml", "mkdocs_annotate/pyproject.toml"])
def test_the_version_is_the_same_everywhere(name):
    text = (ROOT / name).read_text(encoding="utf-8")
    assert re.search(r'^(?:## |version = ")(\d+\.\d+\.\d+)', text, re.M).group(1) == "0.1.0"


def test_every_ignored_rule_of_ruff_is_explained():
    ignored = re.search(r"^ignore = \[\n(.*?)^\]", (ROOT / "pyproject.toml").read_text(encoding="utf-8"), re.M | re.S)
    assert all(re.fullmatch(r'\s+"\w+",\s+# \S.*', line) for line in ignored.group(1).splitlines())


FORBIDDEN = {
    "a path of one machine": re.compile(r"(?:^|[^\w.~}$-])/(?:work|tmp|root|farm|home/\w+)/"),
    "the address of a registry": re.compile(
        r"registry\.(?:npmjs|yarnpkg)\.|\bpypi\.org|files\.pythonhosted|deb\.debian|download\.pytorch|conda\.anaconda"
    ),
}


@pytest.mark.parametrize("what", FORBIDDEN)
def test_no_tracked_file_holds(what):
    found = []
    for path in TRACKED:
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except UnicodeDecodeError:
            continue  # a picture or a font
        found += [f"{path.relative_to(ROOT)}:{k}" for k, line in enumerate(lines, 1) if FORBIDDEN[what].search(line)]
    assert not found


def test_the_lock_file_names_no_download_address():
    packages = json.loads((ROOT / "package-lock.json").read_text(encoding="utf-8"))["packages"]
    assert len(packages) > 3
    assert not [name for name, package in packages.items() if "resolved" in package]
    assert not [name for name, package in packages.items() if name and "integrity" not in package]


def test_no_tracked_file_is_large():
    assert not [path for path in TRACKED if path.stat().st_size > 1024 * 1024]
