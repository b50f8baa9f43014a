"""The page "annotate your own package" keeps its word: its example is built as it stands there."""

import re

import pytest
from building import ROOT, Built, mkdocs

GUIDES = [ROOT / "docs" / "guides" / name for name in ("annotate.md", "annotate.ja.md")]
FILE = re.compile(r'^(`{3,})\w* title="([^"]+)"\n(.*?)^\1$', re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("guide", GUIDES, ids=lambda path: path.name)
def test_the_smallest_site_is_built_as_it_is_printed(guide, tmp_path):
    files = {name: text for _, name, text in FILE.findall(guide.read_text(encoding="utf-8"))}
    assert set(files) == {"walk/descent.py", "docs/index.md", "mkdocs.yml"}
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    (tmp_path / "node_modules").symlink_to(ROOT / "node_modules")
    done = mkdocs("build", "--strict", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    site = Built(tmp_path / "site", done.stderr)
    assert sorted(site.pages()) == ["", "descent/"]
    page = site.document("descent/")
    assert "Gradient descent" in page.html
    assert {"descend", "descend-2", "L18"} <= page.ids
    assert page.html.count('class="katex-html"') >= 3
    assert len([attrs for _, attrs in page.elements if re.search(r"\bsym y\d", attrs.get("class", ""))]) > 5
    assert (tmp_path / "site" / "search" / "search_index.json").is_file()


def test_both_languages_print_the_same_files():
    files = [FILE.findall(guide.read_text(encoding="utf-8")) for guide in GUIDES]
    assert files[0] == files[1]


def test_the_settings_are_listed_with_their_defaults():
    from mkdocs_annotate.languages import Options

    for guide in GUIDES:
        text = guide.read_text(encoding="utf-8")
        listed = dict(re.findall(r"^\| `(\w+)` \| (?:`(.*?)`)? ?\|", text, re.MULTILINE))
        known = {name: option.default for name, option in Options()._schema}
        assert set(listed) == set(known)
        for name, default in known.items():
            shown = {"languages": "{en: English}", "exclude": "[]"}.get(name, default or "")
            assert listed[name] == shown, name
