"""Notebooks as files: read and refused, written, translated, filled in, and told whether they are stale."""

from __future__ import annotations

import copy
import json
import os
import warnings
from pathlib import Path
from typing import Any

import pytest
from lessons import STAMP, code, failed, lesson, printed, save, shown, text

from mkdocs_annotate import notebooks
from mkdocs_annotate.catalogue import Catalogue, Item
from mkdocs_annotate.notebooks import (
    NotebookError,
    Stamp,
    check_outputs,
    find,
    from_source,
    messages,
    read,
    refuse_failures,
    sources,
    stamp_of,
    text_of,
    translated,
    twin_of,
    why_stale,
    with_parameters,
    with_stamp,
    write,
)

SHIPPED = sorted((Path(__file__).parents[2] / "notebooks").glob("*.ipynb"))

EVERYTHING = lesson(
    text("top", "# Lesson\n\nWords.") | {"attachments": {"a.png": {"image/png": "AAAA\n"}}},
    code("print", "print(1)\nprint(2)", printed("1\n2\n"), printed("", "stderr")),
    code(
        "show",
        "x",
        shown(text_plain="one line", text_html="<b>\n</b>", image_png="AA\nBB\n", **{"image_svg_xml": "<svg>\n</svg>"}),
        shown(application_json=["not", "lines"], application_javascript="a\u2028b"),
        {"output_type": "execute_result", "execution_count": 1, "metadata": {}, "data": {"text/plain": "日本語\né"}},
    ),
    code("fail", "1 / 0", failed(), tags=("raises-exception",)),
    code("empty", "", count=None),
    {"cell_type": "raw", "id": "raw", "metadata": {}, "source": "raw\n"},
    kernelspec={"display_name": "Python 3", "language": "python", "name": "python3"},
)


def refusal(path: Path, call: Any = read) -> str:
    with pytest.raises(NotebookError) as error:
        call(path)
    assert "\n" not in str(error.value)
    return str(error.value)


# Reading


@pytest.mark.parametrize(
    ("content", "line", "sentence"),
    [
        (b'{\n "cells": [\n', 3, "this is no notebook: Expecting value."),
        (b"", 1, "this is no notebook: Expecting value."),
        (b"[]", 1, "this is no notebook: it has no list of cells."),
        (b'{"cells": {}}', 1, "this is no notebook: it has no list of cells."),
        (b'{"worksheets": [], "nbformat": 3, "nbformat_minor": 0}', 1, "this is no notebook: it has no list of cells."),
        (b'{"cells": []}', 1, "its cells have no ids: save it in the format 4.5 or later."),
        (b'{"cells": [], "nbformat": "4"}', 1, "its cells have no ids: save it in the format 4.5 or later."),
        (b'{"cells": [], "nbformat": 4, "nbformat_minor": 4}', 1, "its cells have no ids: save it in the format 4.5"),
        (b'{"cells": [1], "nbformat": 4, "nbformat_minor": 5}', 1, "cell 1 is no cell: it has no type or no source."),
        (
            b'{"cells": [{"cell_type": "code", "id": "a", "source": 5}], "nbformat": 4, "nbformat_minor": 5}',
            1,
            "cell 1 is no cell: it has no type or no source.",
        ),
        (
            b'{"cells": [{"cell_type": "code", "id": "a", "source": [5]}], "nbformat": 4, "nbformat_minor": 5}',
            1,
            "cell 1 is no cell: it has no type or no source.",
        ),
        ('{"cells": "é"}'.encode("latin-1"), 1, "the notebook can't be read (it is not UTF-8)."),
    ],
)
def test_a_file_that_is_no_notebook_is_refused_with_its_line(
    tmp_path: Path, content: bytes, line: int, sentence: str
) -> None:
    path = tmp_path / "lesson.ipynb"
    path.write_bytes(content)
    assert refusal(path).startswith(f"{path.as_posix()}:{line}: {sentence}")


def test_a_file_that_cant_be_read_is_refused_with_the_reason(tmp_path: Path) -> None:
    assert "the notebook can't be read (No such file or directory)." in refusal(tmp_path / "lesson.ipynb")
    assert "the notebook can't be read (Is a directory)." in refusal(tmp_path)


def test_cells_without_an_id_or_with_one_that_is_taken_are_named_with_their_line(tmp_path: Path) -> None:
    tricky = code("a", '{"cell_type": "code"}', printed('"cell_type"\n'))
    path = save(tmp_path / "lesson.ipynb", lesson(tricky, text("b", ""), text("a", "")))
    lines = path.read_text(encoding="utf-8").splitlines()
    line = [number for number, line in enumerate(lines, 1) if '"cell_type": "markdown"' in line]
    assert (
        refusal(path) == f"{path.as_posix()}:{line[1]}: the id a of cell 3 is taken: give each cell an id of its own."
    )
    save(path, lesson(tricky, {"cell_type": "markdown", "metadata": {}, "source": ""}))
    assert refusal(path).endswith(f":{line[0]}: cell 2 has no id: give each cell an id of its own.")


def test_texts_in_one_piece_and_in_lines_read_alike(tmp_path: Path) -> None:
    path = save(tmp_path / "lesson.ipynb", EVERYTHING)
    assert read(path) == EVERYTHING
    write(EVERYTHING, path)
    assert '"1\\n",' in path.read_text(encoding="utf-8")
    assert read(path) == EVERYTHING


def test_a_cell_that_failed_is_named_with_its_line_unless_it_is_meant_to(tmp_path: Path) -> None:
    cells = [text("top", "# Lesson"), code("boom", "1 / 0", failed("ValueError", "one\n  two"))]
    path = save(tmp_path / "lesson.ipynb", lesson(*cells))
    line = 1 + path.read_text(encoding="utf-8")[: path.read_text(encoding="utf-8").index('"code"')].count("\n")
    sentence = f'{path.as_posix()}:{line}: the cell "boom" has failed (ValueError: one two); mend it, and run it again.'
    for call in (refuse_failures, check_outputs):
        assert refusal(path, lambda path, call=call: call(path, read(path))) == sentence
    save(path, lesson(code("boom", "raise KeyboardInterrupt", failed("KeyboardInterrupt", ""))))
    assert "has failed (KeyboardInterrupt); mend" in refusal(path, lambda path: check_outputs(path, read(path)))
    save(path, lesson(code("boom", "1 / 0", failed(), tags=("raises-exception",))))
    assert check_outputs(path, read(path)) == Stamp(**STAMP)


def test_a_cell_that_was_not_executed_and_outputs_without_a_stamp_are_refused(tmp_path: Path) -> None:
    path = save(tmp_path / "lesson.ipynb", lesson(code("empty", " \n", count=None), code("late", "x", count=None)))
    assert 'the cell "late" was not executed; run `' in refusal(path, lambda path: check_outputs(path, read(path)))
    for wrong in (None, {"device": "CPU"}, STAMP | {"more": 1}, STAMP | {"sources": []}, STAMP | {"seconds": "1"}):
        save(path, lesson(code("done", "x"), stamp=wrong))
        assert stamp_of(read(path)) is None
        sentence = refusal(path, lambda path: check_outputs(path, read(path)))
        assert "its outputs carry no stamp that says where they come from; run `" in sentence


def test_a_stamp_says_where_seed_and_how_long() -> None:
    assert str(Stamp(**STAMP)) == "CPU, torch 2.10, Python 3.11, seed 0, 1 s"


def test_twins_and_runs_are_no_notebooks_of_their_own(tmp_path: Path) -> None:
    lesson_, other = tmp_path / "lesson.ipynb", tmp_path / "a_lesson.ipynb"
    for path in (lesson_, other, twin_of(lesson_, "ja"), twin_of(lesson_, "cuda"), tmp_path / ".lesson.ipynb.new"):
        path.touch()
    assert find(tmp_path) == {"a_lesson": other, "lesson": lesson_}
    assert twin_of(lesson_, "ja").name == "lesson.ja.ipynb"
    assert find(tmp_path / "nowhere") == {}


# Writing


def test_what_is_written_is_what_nbformat_writes(tmp_path: Path) -> None:
    nbformat = pytest.importorskip("nbformat")
    path = tmp_path / "theirs.ipynb"
    nbformat.write(nbformat.from_dict(copy.deepcopy(EVERYTHING)), path)
    assert text_of(EVERYTHING) == path.read_text(encoding="utf-8")
    assert read(path) == EVERYTHING


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.name)
def test_a_notebook_of_the_project_is_valid_for_nbformat_and_written_as_it_writes(path: Path) -> None:
    nbformat = pytest.importorskip("nbformat")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        notebook = nbformat.read(path, as_version=4)
        nbformat.validate(notebook)
    assert nbformat.writes(notebook) + "\n" == path.read_text(encoding="utf-8") == text_of(read(path))


def test_the_project_has_notebooks() -> None:
    """So that the test above has something to look at."""
    assert [path for path in SHIPPED if path.name.endswith(".ja.ipynb")]


def test_writing_again_changes_nothing_and_any_other_bytes_are_replaced(tmp_path: Path) -> None:
    path = tmp_path / "new" / "lesson.ipynb"
    assert write(EVERYTHING, path)
    data, made = path.read_bytes(), path.stat().st_mtime_ns
    assert not write(EVERYTHING, path)
    assert not write(read(path), path)
    assert path.stat().st_mtime_ns == made
    for other in (data.replace(b"\n", b"\r\n"), b"\xff"):
        path.write_bytes(other)
        assert write(EVERYTHING, path)
        assert path.read_bytes() == data
    assert [file.name for file in path.parent.iterdir()] == ["lesson.ipynb"]


@pytest.mark.parametrize("stop", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_a_write_that_is_stopped_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stop: BaseException
) -> None:
    path = save(tmp_path / "lesson.ipynb", EVERYTHING)
    before = path.read_bytes()

    def replace(source: object, target: object) -> None:
        raise stop

    monkeypatch.setattr(os, "replace", replace)
    with pytest.raises((NotebookError, KeyboardInterrupt)) as error:
        write(lesson(), path)
    assert isinstance(stop, KeyboardInterrupt) or str(error.value) == (
        f"{path.as_posix()}:1: the notebook can't be written (No space left on device)."
    )
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_a_place_that_cant_be_written_to_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path in (tmp_path / "file" / "lesson.ipynb", tmp_path):
        assert "the notebook can't be written (" in refusal(path, lambda path: write(EVERYTHING, path))


# Languages


def test_the_catalogue_of_a_notebook_holds_its_texts_in_order(tmp_path: Path) -> None:
    path = save(
        tmp_path / "lesson.ipynb", lesson(text("b", "Words."), text("none", " \n"), code("c", "x"), text("a", "Words."))
    )
    assert [message.key for message in messages(path)] == [("lesson#b", "Words."), ("lesson#a", "Words.")]


def test_a_twin_has_the_same_code_and_outputs_and_other_words(tmp_path: Path) -> None:
    path = tmp_path / "lesson.ipynb"
    english = lesson(
        text("top", "# Lesson"),
        code("c", "x", printed("1\n")),
        text("b", "Fuzzy."),
        text("d", "Old."),
        text("e", "New."),
    )
    items = [
        Item("lesson#top", "# Lesson", "# 授業"),
        Item("lesson#b", "Fuzzy.", "曖昧。", fuzzy=True),
        Item("lesson#d", "Older.", "古い。"),
        Item("other#e", "New.", "新しい。"),
    ]
    before = copy.deepcopy(english)
    twin = translated(path, english, Catalogue(tmp_path / "lesson.po", items, None))
    assert english == before
    assert [cell["source"] for cell in twin["cells"]] == ["# 授業", "x", "Fuzzy.", "Old.", "New."]
    assert twin == {**english, "cells": [english["cells"][0] | {"source": "# 授業"}, *english["cells"][1:]]}


# What is filled in


def test_parameters_are_set_and_what_no_cell_sets_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "lesson.ipynb"
    notebook = lesson(code("before", "EPOCHS = 1"), code("set", "EPOCHS = 60  # long\nNAME = ''", tags=("parameters",)))
    before = copy.deepcopy(notebook)
    changed = with_parameters(path, notebook, {"EPOCHS": 2, "NAME": r"a\1\n"})
    assert [cell["source"] for cell in changed["cells"]] == ["EPOCHS = 1", "EPOCHS = 2\nNAME = 'a\\\\1\\\\n'"]
    assert notebook == before
    for wrong in (notebook, lesson(code("set", "EPOCH = 1"))):
        with pytest.raises(NotebookError, match=r"lesson.ipynb:1: no cell with the tag `parameters` sets EPOCH\."):
            with_parameters(path, wrong, {"EPOCH": 2})


@pytest.mark.parametrize("address", ["https://example.org/labml_opt.whl", 'C:\\1 "x"', "例え"])
def test_the_install_cell_is_told_where_the_package_is(address: str) -> None:
    source = 'SOURCE = ""\nif SOURCE:\n    SOURCE = "x"\n'
    notebook = lesson(code("install", source, tags=("install",)), code("other", source))
    known = from_source(notebook, address)
    names: dict[str, Any] = {}
    exec(known["cells"][0]["source"].partition("\n")[0], names)
    assert names["SOURCE"] == address
    assert known["cells"][0]["source"].partition("\n")[2] == source.partition("\n")[2]
    assert known["cells"][1] == notebook["cells"][1]
    assert notebook["cells"][0]["source"] == source


# Stale


def test_a_notebook_is_stale_when_its_cells_or_what_they_reach_changed_and_says_which(tmp_path: Path) -> None:
    package = tmp_path / "toys"
    package.mkdir()
    (package / "toy.py").write_text("x = 1\n", encoding="utf-8")
    notebook = lesson(
        code("install", 'SOURCE = ""', tags=("install",)), text("t", "Words."), code("c", "import toys.toy")
    )
    assert why_stale(lesson(*notebook["cells"], stamp=None), package) == "it was never run"
    fresh = with_stamp(notebook, Stamp(**STAMP | {"sources": sources(notebook, package)}))
    assert why_stale(fresh, package) == ""
    fresh["cells"][1]["source"] = "Other words."
    assert why_stale(from_source(fresh, "elsewhere"), package) == ""
    (package / "toy.py").write_text("x = 2\n", encoding="utf-8")
    assert why_stale(fresh, package) == "what it comes from has changed: toys.toy"
    fresh["cells"][2]["source"] = "import toys"
    assert why_stale(fresh, package) == "what it comes from has changed: cells, toys.toy"
    assert json.loads(text_of(notebook))["metadata"]["stamp"] == STAMP
    assert notebooks.stamp_of(notebook) == Stamp(**STAMP)
