"""Which modules become pages, and what is said where there are none."""

import re

import pytest

from mkdocs_annotate.sources import PackageError, modules


def test_a_package_that_is_missing_a_file_or_empty_is_refused_in_a_sentence(tmp_path):
    with pytest.raises(PackageError, match="walk is not there: `package` names the folder"):
        modules(tmp_path / "walk")
    (tmp_path / "walk.py").write_text("")
    with pytest.raises(PackageError, match=r"walk\.py is a file: `package` names the folder"):
        modules(tmp_path / "walk.py")
    (tmp_path / "walk").mkdir()
    (tmp_path / "walk" / "__init__.py").write_text("")
    with pytest.raises(PackageError, match="walk holds no module that becomes a page"):
        modules(tmp_path / "walk")
    (tmp_path / "walk" / "a.py").write_text("")
    assert set(modules(tmp_path / "walk")) == {"a"}
    with pytest.raises(PackageError, match="walk holds no module that becomes a page"):
        modules(tmp_path / "walk", ["a"])


@pytest.mark.parametrize("spoil", [lambda path: path.mkdir(), lambda path: path.symlink_to("nowhere")])
def test_what_only_looks_like_a_module_is_named_unless_it_is_left_out(tmp_path, spoil):
    (tmp_path / "a.py").write_text("")
    spoil(tmp_path / "d.py")
    with pytest.raises(PackageError, match=re.escape(f"{tmp_path.as_posix()}/d.py is no file: rename or delete it")):
        modules(tmp_path)
    assert set(modules(tmp_path, ["d"])) == {"a"}
