"""What some code comes from: the code counts, what is said about it doesn't."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from mkdocs_annotate.origin import homes, sources

TOY = '''\
"""A toy."""

from toys.parts import WHEEL


class Toy:
    """Rolls."""

    def roll(self):
        """Roll once."""
        return WHEEL  # round
'''


@pytest.fixture
def package(tmp_path: Path) -> Path:
    write(
        tmp_path,
        "toys/__init__.py",
        '"""Toys."""\n\nfrom toys.toy import Toy\nfrom toys.other import Other as Second\n',
    )
    write(tmp_path, "toys/toy.py", TOY)
    write(tmp_path, "toys/parts.py", "WHEEL = 1\n")
    write(tmp_path, "toys/other.py", "class Other:\n    pass\n")
    return tmp_path / "toys"


def write(folder: Path, name: str, text: str) -> None:
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text, encoding="utf-8")


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")


def test_a_name_that_the_package_hands_on_leads_to_its_module_and_what_that_imports(package: Path) -> None:
    assert set(sources(["from toys import Toy"], package)) == {"cells", "toys.parts", "toys.toy"}
    assert set(sources(["from toys import Second"], package)) == {"cells", "toys.other"}
    assert set(sources(["import toys.parts as p"], package)) == {"cells", "toys.parts"}
    assert set(sources(["from toys import parts"], package)) == {"cells", "toys.parts"}
    assert set(sources(["import math\nfrom json import loads\nfrom toys_of_others import x"], package)) == {"cells"}


def test_a_name_that_no_module_defines_counts_as_the_whole_package(package: Path) -> None:
    whole = {"cells", "toys", "toys.other", "toys.parts", "toys.toy"}
    for cell in ("import toys", "from toys import *", "from toys import __doc__"):
        assert set(sources([cell], package)) == whole


def test_relative_imports_lead_on_like_absolute_ones(package: Path) -> None:
    cells = ["from toys import Toy"]
    absolute = set(sources(cells, package))
    write(package.parent, "toys/__init__.py", "from .toy import Toy\n")
    edit(package / "toy.py", "from toys.parts", "from .parts")
    assert set(sources(cells, package)) == absolute
    write(package.parent, "toys/small/__init__.py", "from .dot import Dot\n")
    write(package.parent, "toys/small/dot.py", "from ..parts import WHEEL\nfrom .. import other\nDot = WHEEL\n")
    assert set(sources(["from toys.small import Dot"], package)) == {
        "cells",
        "toys.other",
        "toys.parts",
        "toys.small.dot",
    }


def test_modules_that_import_each_other_and_a_name_that_comes_from_nowhere_come_to_an_end(package: Path) -> None:
    edit(package / "parts.py", "WHEEL = 1", "from toys.toy import Toy\nfrom toys import parts\nWHEEL = 1")
    edit(package / "__init__.py", "from toys.toy", "from toys import Toy\nfrom toys.toy")
    assert set(sources(["from toys import Toy"], package)) == {"cells", "toys.parts", "toys.toy"}


def test_comments_docstrings_and_blank_lines_dont_count(package: Path) -> None:
    cells = ["from toys import Toy\nx = Toy()  # a toy\n", "def f():\n    return 1\n"]
    before = sources(cells, package)
    edit(package / "toy.py", '"""Rolls."""', '"""It rolls."""\n')
    edit(package / "toy.py", '"""Roll once."""', "# Roll once.")
    edit(package / "toy.py", '"""A toy."""\n', "# é\n")
    cells = ["# Take one.\nfrom toys import Toy\n\nx = Toy()\n", 'def f():\n    """Return 1."""\n    return 1\n']
    assert sources(cells, package) == before


def test_code_counts_where_it_stands(package: Path) -> None:
    cells = ["from toys import Toy", "x = 1"]
    before = sources(cells, package)
    assert {name for name, _ in before.items() ^ sources(["from toys import Toy", "x = 2"], package).items()} == {
        "cells"
    }
    edit(package / "parts.py", "1", "2")
    changed = sources(cells, package)
    assert {name for name, _ in before.items() ^ changed.items()} == {"toys.parts"}
    edit(package / "toy.py", "return WHEEL", "return -WHEEL")
    assert {name for name, _ in changed.items() ^ sources(cells, package).items()} == {"toys.toy"}


def test_a_module_that_the_cells_dont_reach_doesnt_count(package: Path) -> None:
    before = sources(["from toys import Toy"], package)
    write(package.parent, "toys/other.py", "class Other:\n    x = 1\n")
    write(package.parent, "toys/new.py", "x = 1\n")
    edit(package / "__init__.py", "from toys.other", "from toys.new import x\nfrom toys.other")
    assert sources(["from toys import Toy"], package) == before


def test_what_a_module_does_as_a_program_is_no_source_of_a_cell(package: Path) -> None:
    before = sources(["from toys import Toy"], package)
    with (package / "toy.py").open("a", encoding="utf-8") as file:
        file.write('\n\nif __name__ == "__main__":\n    from toys.other import Other\n\n    print(Other())\n')
    assert sources(["from toys import Toy"], package) == before
    mine = 'if __name__ == "__main__":\n    from toys import '  # a cell is the program
    assert set(sources([mine + "Second"], package)) == {"cells", "toys.other"}


def test_a_string_that_a_cell_shows_is_code(package: Path) -> None:
    assert sources(['"hello"'], package) != sources(['"good bye"'], package)


@pytest.mark.parametrize("command", ["%matplotlib inline", "!pip list", "Toy?", "    %time x", "%cd /tmp  # there"])
def test_a_command_of_ipythons_hides_neither_the_code_beside_it_nor_itself(package: Path, command: str) -> None:
    head = "if True:\n" if command.startswith(" ") else ""
    cell = f"from toys import Toy\n{head}{command}\nx = Toy()  # {{}}\n"
    found = sources([cell.format("one")], package)
    assert "toys.toy" in found
    assert sources([cell.format("two")], package) == found
    assert sources([cell.replace(command, f"{command[:-1]}!")], package) != found


def test_a_cell_that_is_no_python_counts_as_it_stands(package: Path) -> None:
    for cell in ("%%bash\necho from toys import Toy\n", "files = !ls\n", "x = (\n", "x = '\0'"):
        found = sources([cell], package)
        assert set(found) == {"cells"}
        assert sources([cell + " "], package) != found


def test_a_module_that_python_cant_parse_counts_as_it_stands(package: Path) -> None:
    (package / "parts.py").write_bytes(b"WHEEL = (\n\xff")
    before = sources(["from toys import Toy"], package)
    (package / "parts.py").write_bytes(b"WHEEL = (\n\xfe\xff")
    assert sources(["from toys import Toy"], package) != before
    write(package.parent, "toys/__init__.py", "from toys.toy import (\n")
    assert set(sources(["from toys import Toy"], package)) == {"cells", "toys"}


def test_the_digest_is_the_same_in_other_versions_of_python(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A later version adds fields (`type_params`), and knows more signs that `repr` writes as they are."""
    cells = ["def f(x: int) -> str:\n    return 'é\\U0001fae9'\n"]  # the face is one of Unicode 16
    before = sources(cells, package)
    assert before == {"cells": "251fa9ec6bd9e961"}
    for kind in (ast.FunctionDef, ast.Return):
        monkeypatch.setattr(kind, "_fields", (*kind._fields, "fields_of_tomorrow"))
        monkeypatch.setattr(kind, "fields_of_tomorrow", [], raising=False)
    monkeypatch.setattr(ast, "dump", None)  # whose text is another one in each version
    assert sources(cells, package) == before


def test_classes_and_functions_have_a_home_modules_and_values_have_none(package: Path) -> None:
    cells = ["from toys import Toy as T, Second, parts\nfrom toys.parts import WHEEL", "from json import loads"]
    assert homes(cells, package) == {"T": "toys.toy#Toy", "Second": "toys.other#Other"}
    assert homes(["from toys.nowhere import Toy", "from nowhere import Toy", "from toys import *"], package) == {}
    (package / "__init__.py").unlink()
    assert homes(["from toys import Toy", "from toys.toy import Toy"], package) == {"Toy": "toys.toy#Toy"}
