"""Every notebook as it is stored: a valid file whose outputs are those of its code, and whose claims are asserted."""

import ast
import functools
import getpass
import re
import socket
import warnings
from pathlib import Path

import nbformat
import pytest

from mkdocs_annotate import notebooks

ROOT = Path(__file__).parents[2]
FOLDER, PACKAGE = ROOT / "notebooks", ROOT / "labml_opt"
NAMES = list(notebooks.find(FOLDER))
FILES = sorted(path.name for path in FOLDER.glob("*.ipynb"))
CPU_FILES = [name for name in FILES if not name.endswith(f".{notebooks.GPU}.ipynb")]
LANGUAGES = ["ja"]
LARGEST_FIGURE = 40_000  # bytes


@functools.cache
def stored(name: str):
    return notebooks.read(FOLDER / name)


def cells_of(notebook, kind: str = "code"):
    return [cell for cell in notebook["cells"] if cell["cell_type"] == kind]


def outputs_of(notebook):
    return [output for cell in cells_of(notebook) for output in cell["outputs"]]


def texts_of(output) -> list[str]:
    """All that an output shows, each kind of it apart."""
    return [output.get("text", ""), *map(str, output.get("data", {}).values()), *output.get("traceback", ())]


# The file


@pytest.mark.parametrize("name", FILES)
def test_it_is_valid_and_its_cells_have_ids_of_their_own(name):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        node = nbformat.read(FOLDER / name, as_version=nbformat.NO_CONVERT)
        nbformat.validate(node)
    assert (node.nbformat, node.nbformat_minor) == (4, 5)
    ids = [cell.id for cell in node.cells]
    assert len(set(ids)) == len(ids)
    assert not [each for each in ids if not re.fullmatch(r"[a-z]+(?:-[a-z]+)*", each)], "an id says what the cell does"


@pytest.mark.parametrize("name", NAMES)
def test_it_has_a_twin_in_each_language_with_the_same_code_and_outputs(name):
    notebook = stored(f"{name}.ipynb")
    for language in LANGUAGES:
        twin = stored(f"{name}.{language}.ipynb")
        assert twin["metadata"] == notebook["metadata"]
        assert [cell["id"] for cell in twin["cells"]] == [cell["id"] for cell in notebook["cells"]]
        assert cells_of(twin) == cells_of(notebook)
        for one, other in zip(notebook["cells"], twin["cells"], strict=True):
            assert one["metadata"] == other["metadata"]
            if one["cell_type"] == "markdown":
                assert one["source"] != other["source"], f"{one['id']} is not translated"


def test_every_file_belongs_to_a_notebook():
    endings = [notebooks.GPU, *LANGUAGES]
    known = {f"{name}.ipynb" for name in NAMES} | {f"{name}.{end}.ipynb" for name in NAMES for end in endings}
    assert NAMES
    assert set(FILES) <= known


# Its outputs


@pytest.mark.parametrize("name", CPU_FILES)
def test_its_outputs_are_those_of_its_code_on_a_cpu_in_little_time(name):
    notebook = stored(name)
    stamp = notebooks.check_outputs(FOLDER / name, notebook)
    assert not notebooks.why_stale(notebook, PACKAGE), "run `python tasks.py notebooks`"
    assert stamp.device == notebooks.CPU
    assert stamp.seconds < 180
    counts = [cell["execution_count"] for cell in cells_of(notebook)]
    assert counts == list(range(1, len(counts) + 1)), "from the first cell to the last, in one go"


def test_a_run_on_a_gpu_says_on_which_one():
    """It may be one of an earlier version, which its page then says: not everyone has a GPU."""
    for name in set(FILES) - set(CPU_FILES):
        stamp = notebooks.check_outputs(FOLDER / name, stored(name))
        assert stamp.device != notebooks.CPU


@pytest.mark.parametrize("name", FILES)
def test_its_outputs_tell_nothing_of_the_machine_and_warn_of_nothing(name):
    user, host = getpass.getuser(), socket.gethostname()
    private = [
        r"(?<![\w.:/])/(?:home|Users|root|work|tmp|usr|opt|var|content|mnt)\b",
        r"\b[A-Z]:\\",
        r"site-packages",
        r"ipykernel_\d+",
        r"Warning\b|\bwarn\b",
        r"Traceback",
        rf"\b{re.escape(user)}\b",
        *([rf"\b{re.escape(host)}\b"] if len(host) > 3 else []),
    ]
    for output in outputs_of(stored(name)):
        assert output.get("name") != "stderr"
        for text in texts_of(output):
            found = [pattern for pattern in private if re.search(pattern, text)]
            assert not found, f"{found} in {text[:200]}"


@pytest.mark.parametrize("name", FILES)
def test_its_figures_are_drawings_that_are_small_and_can_be_read_without_seeing(name):
    cells = stored(name)["cells"]
    figures = 0
    for cell, after in zip(cells, [*cells[1:], None], strict=True):
        for output in cell.get("outputs", ()):
            data = output.get("data", {})
            assert not [kind for kind in data if kind.startswith("image/") and kind != "image/svg+xml"]
            if "image/svg+xml" in data:
                figures += 1
                drawing = data["image/svg+xml"]
                assert len(drawing.encode()) < LARGEST_FIGURE
                assert "<text" in drawing, "its text is no outline of letters"
                assert not re.search(r"<dc:date>|<script|href=\"https?:", drawing)
                assert re.match(r"[A-Z]\w+ ", data["text/plain"]), "a sentence stands for it"
                assert after["id"] == f"{cell['id']}-caption"
                assert notebooks.tags(after) == ["caption"]
                assert len(after["source"]) > len(data["text/plain"])
    assert figures


# Its claims


def claims_without_assertion(cells) -> list[str]:
    """List the Markdown cells that say something about results and aren't followed by what asserts it.

    What a cell is, its id says: `x-text` leads to the code below it, `x-said` says what came out, `x-caption` what a
    figure shows. The last two are followed by the code cell `x-asserted`. So is, before the next heading, each
    piece of code whose outputs the reader sees, apart from that which says where it runs.
    """
    wrong = []
    for number, cell in enumerate(cells):
        name = cell["id"]
        stem, _, kind = name.rpartition("-")
        before = cells[number - 1] if number else None
        if cell["cell_type"] == "markdown":
            if kind in ("said", "caption"):
                rest = iter(cells[number + 1 :])
                after = next((each for each in rest if each["id"] not in (f"{stem}-said", f"{stem}-caption")), None)
                if not after or after["id"] != f"{stem}-asserted":
                    wrong.append(f"{name}: no cell {stem}-asserted follows")
                elif len(asserts(after)) < max(1, len(re.findall(r"^- ", cell["source"], re.M))):
                    wrong.append(f"{name}: it says more than {stem}-asserted asserts")
            elif number and kind != "text":
                wrong.append(f"{name}: is it a -text, a -said or a -caption?")
            elif before and before.get("outputs") and not cell["source"].startswith("## "):
                wrong.append(f"{name}: it stands below outputs, so it is something that is said about them")
        elif kind == "asserted":
            if not asserts(cell):
                wrong.append(f"{name}: it asserts nothing")
        elif cell["outputs"] and name != "device":
            section = []
            for each in cells[number + 1 :]:
                if each["cell_type"] == "markdown" and each["source"].startswith("## "):
                    break
                section.append(each["id"])
            if f"{name}-asserted" not in section and not any(each.endswith("-asserted") for each in section):
                wrong.append(f"{name}: nothing is asserted about what it shows")
    return wrong


def asserts(cell) -> list[ast.Assert]:
    """The assertions of a cell that depend on something."""
    found = [node for node in ast.walk(ast.parse(cell["source"])) if isinstance(node, ast.Assert)]
    return [node for node in found if any(isinstance(part, ast.Name) for part in ast.walk(node.test))]


@pytest.mark.parametrize("name", NAMES)
def test_what_it_says_about_results_is_asserted_below(name):
    cells = stored(f"{name}.ipynb")["cells"]
    assert not claims_without_assertion(cells)
    assert [cell["id"] for cell in cells if cell["id"].endswith("-said")]


@pytest.mark.parametrize("kind", ["said", "caption", "text", "thoughts"])
def test_a_new_claim_without_an_assertion_is_found(kind):
    cells = list(stored(f"{NAMES[0]}.ipynb")["cells"])
    place = next(number for number, cell in enumerate(cells) if cell.get("outputs") and number > 10)
    claim = {"id": f"new-{kind}", "cell_type": "markdown", "source": "It is better in every way.", "metadata": {}}
    assert claims_without_assertion([*cells[: place + 1], claim, *cells[place + 1 :]])


def test_a_claim_is_found_whose_assertions_are_gone_or_empty():
    cells = stored(f"{NAMES[0]}.ipynb")["cells"]
    for cell in cells:
        if cell["id"].endswith("-asserted"):
            assert claims_without_assertion([each for each in cells if each is not cell])
            assert claims_without_assertion(
                [each if each is not cell else {**each, "source": "assert True"} for each in cells]
            )
