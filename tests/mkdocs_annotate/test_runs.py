"""Running notebooks, with real kernels: a run is stored whole or not at all."""

from __future__ import annotations

import atexit
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from lessons import code, lesson, printed, save, text

from mkdocs_annotate import notebooks, runs
from mkdocs_annotate.__main__ import main
from mkdocs_annotate.notebooks import NotebookError, Stamp, read, stamp_of, twin_of

ROOT = Path(__file__).parents[2]
CONFIG = """\
plugins:
  - annotate: {package: toys, notebooks: lessons, languages: {en: English, ja: 日本語}}
"""
STAMPING = """\
import os
gpu = os.environ.get("CUDA_VISIBLE_DEVICES") != ""
stamp = {"device": "A GPU" if gpu else "CPU", "torch": "2.10", "python": "3.11", "seed": 7}
"""
INSTALL = code("install", 'SOURCE = ""', tags=("install",), count=None)
FRESH = (
    text("top", "# Lesson"),
    INSTALL,
    code("stamp", STAMPING, count=None),
    code("toy", "import sys\nsys.path.insert(0, '..')\nfrom toys.toy import X\nprint(X)\nX", count=None),
    code("fail", "1 / 0", tags=("raises-exception",), count=None),
    code("folder", "import tempfile\nprint(tempfile.mkstemp()[1])\nprint(os.getcwd())", count=None),
)


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with one notebook that was never run; there is no GPU, whatever machine this is."""
    (tmp_path / "mkdocs.yml").write_text(CONFIG, encoding="utf-8")
    (tmp_path / "toys").mkdir()
    (tmp_path / "toys" / "toy.py").write_text("X = 1\n", encoding="utf-8")
    save(tmp_path / "lessons" / "lesson.ipynb", lesson(*FRESH, stamp=None))
    monkeypatch.setattr(runs, "has_gpu", lambda: False)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return tmp_path


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The notebooks that are run, by a kernel that does nothing but say where it was."""
    found = []

    def execute(path: Path, notebook: notebooks.Notebook, package: Path, **options: Any) -> notebooks.Notebook:
        device = options.get("device", "CPU")
        found.append(f"{path.stem} {device}")
        stamp = Stamp(device, "2.10", "3.11", 7, 1.0, notebooks.sources(notebook, package))
        cells = [cell | {"execution_count": 1} if cell["cell_type"] == "code" else cell for cell in notebook["cells"]]
        return notebooks.with_stamp({**notebook, "cells": cells}, stamp)

    monkeypatch.setattr(runs, "execute", execute)
    return found


def run(root: Path, *arguments: str) -> int:
    return main(["--config", str(root / "mkdocs.yml"), "notebooks", *arguments])


def files(root: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (root / "lessons").iterdir()}


# With kernels


def test_a_run_stores_outputs_stamp_and_twin_and_leaves_nothing_and_a_gpu_gets_a_run_of_its_own(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = root / "lessons" / "lesson.ipynb"
    assert run(root) == 0
    out = capsys.readouterr().out
    assert "lesson: it was never run\n" in out
    assert "lesson.ipynb (CPU): cell 3 of 5, toy\n" in out
    notebook = read(path)
    stamp = notebooks.check_outputs(path, notebook)
    assert f"lesson: ran ({stamp})" in out
    assert (stamp.device, stamp.torch, stamp.python, stamp.seed) == ("CPU", "2.10", "3.11", 7)
    assert 0 < stamp.seconds < 60
    assert set(stamp.sources) == {"cells", "toys.toy"}
    assert [cell["id"] for cell in notebook["cells"]] == [cell["id"] for cell in FRESH]
    assert [cell["source"] for cell in notebook["cells"]] == [cell["source"] for cell in FRESH]
    made = {cell["id"]: cell.get("outputs") for cell in notebook["cells"]}
    assert made["toy"][0] == printed("1\n")
    assert made["toy"][1]["data"] == {"text/plain": "1"}
    assert made["fail"][0]["ename"] == "ZeroDivisionError"
    written, where = made["folder"][0]["text"].splitlines()
    assert not Path(written).parent.exists()
    assert Path(where) == path.parent.resolve()
    assert not [cell for cell in notebook["cells"] if "execution" in cell["metadata"]]  # times would differ each time
    before = files(root)
    assert set(before) == {"lesson.ipynb", "lesson.ja.ipynb"}
    assert read(twin_of(path, "ja")) == notebook

    monkeypatch.setattr(runs, "has_gpu", lambda: True)
    assert run(root) == 0
    out = capsys.readouterr().out
    assert f"lesson: as it was ({stamp})" in out
    assert "(CPU)" not in out
    gpu = read(twin_of(path, "cuda"))
    assert f"lesson: ran on CUDA ({stamp_of(gpu)})" in out
    assert notebooks.check_outputs(path, gpu).device == "A GPU"
    assert files(root) == before | {"lesson.cuda.ipynb": twin_of(path, "cuda").read_bytes()}


DYING = "import os\nos._exit(1)"
WARNING = "import warnings\nwarnings.warn('beware\\nof that', stacklevel=1)"


@pytest.mark.parametrize(
    ("cells", "sentence"),
    [
        ([code("c", "raise ValueError('one\\n two')")], 'the cell "c" fails (ValueError: one two)'),
        ([code("stamp", STAMPING), code("c", WARNING)], 'the cell "c" warns (UserWarning: beware)'),
        ([code("stamp", STAMPING), code("c", DYING)], 'the kernel died in the cell "c" (often for want of memory)'),
        ([code("c", "pass")], "it leaves no dictionary `stamp` that says where it ran"),
        ([code("c", "stamp = {'device': 'CPU'}")], "its dictionary `stamp` lacks device, torch, python or seed"),
    ],
)
def test_a_run_that_fails_is_one_sentence_and_stores_nothing(
    root: Path, capsys: pytest.CaptureFixture[str], cells: list[dict[str, Any]], sentence: str
) -> None:
    path = save(root / "lessons" / "lesson.ipynb", lesson(*cells, stamp=None))
    before = files(root)
    assert run(root) == 1
    assert capsys.readouterr().err == f"{path.as_posix()}:1: {sentence}; what is stored is unchanged.\n"
    assert files(root) == before


def test_a_kernel_that_is_not_there_or_does_not_start_is_named(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = root / "jupyter" / "kernels" / "broken" / "kernel.json"
    spec.parent.mkdir(parents=True)
    spec.write_text(json.dumps({"argv": [sys.executable, "-c", "", "{connection_file}"], "display_name": "b"}))
    monkeypatch.setenv("JUPYTER_PATH", str(root / "jupyter"))
    at_exit: list[Any] = []
    monkeypatch.setattr(atexit, "register", at_exit.append)
    monkeypatch.setattr(atexit, "unregister", at_exit.remove)
    for name, sentence in (
        ("nobodys", 'there is no Jupyter kernel "nobodys": install ipykernel; what is stored is unchanged.\n'),
        ("broken", "the kernel died as it began; what is stored is unchanged.\n"),
    ):
        save(root / "lessons" / "lesson.ipynb", lesson(code("c", "pass"), stamp=None, kernelspec={"name": name}))
        assert run(root) == 1
        assert capsys.readouterr().err.endswith(f"lesson.ipynb:1: {sentence}")
        assert not [call for call in at_exit if "NotebookClient" in repr(call)]  # it would print a traceback


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_run_that_is_stopped_ends_at_once_in_one_sentence_with_its_kernel_and_its_folder(
    root: Path, tmp_path_factory: pytest.TempPathFactory, number: int
) -> None:
    scratch = tmp_path_factory.mktemp("scratch")
    waiting = "import os, time\nprint(os.getpid(), file=open('pid', 'w'), flush=True)\ntime.sleep(100)"
    save(root / "lessons" / "lesson.ipynb", lesson(code("c", waiting), stamp=None))
    before = files(root)
    command = [sys.executable, "-m", "mkdocs_annotate", "notebooks"]
    environment = os.environ | {"TMPDIR": str(scratch), "PYTHONPATH": str(ROOT)}
    pipes = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, cwd=root, env=environment, text=True, start_new_session=True, **pipes) as runner:
        pid = root / "lessons" / "pid"
        while not (pid.exists() and pid.read_text(encoding="utf-8").endswith("\n")):
            assert runner.poll() is None, runner.stderr.read()
            time.sleep(0.05)
        kernel = int(pid.read_text(encoding="utf-8"))
        assert list(scratch.glob("notebook-*"))
        runner.send_signal(number)
        _, err = runner.communicate(timeout=90)
    assert err == "stopped; what was stored before is as it was\n"
    assert runner.returncode == 130
    pid.unlink()
    assert files(root) == before
    assert not list(scratch.glob("notebook-*"))
    with pytest.raises(ProcessLookupError):
        os.kill(kernel, 0)


# Which are run


def test_what_is_fresh_is_not_run_again_and_words_and_comments_make_nothing_stale(
    root: Path, ran: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    path, toy = root / "lessons" / "lesson.ipynb", root / "toys" / "toy.py"
    assert run(root) == 0
    assert ran == ["lesson CPU"]
    before = files(root)
    assert run(root) == 0
    assert files(root) == before
    toy.write_text('"""Toys."""\n\nX = 1  # one\n', encoding="utf-8")
    notebook = read(path)
    notebook["cells"][0]["source"] = "# Other words"
    notebook["cells"][3]["source"] += "  # shown"
    save(path, notebook)
    assert run(root) == 0
    assert ran == ["lesson CPU"]
    assert read(twin_of(path, "ja")) == notebook == read(path)
    capsys.readouterr()
    toy.write_text("X = 2\n", encoding="utf-8")
    assert run(root) == 0
    assert ran == ["lesson CPU"] * 2
    assert "lesson: what it comes from has changed: toys.toy\n" in capsys.readouterr().out


def test_some_or_all_are_run_as_asked_and_a_name_that_is_none_is_refused(
    root: Path, ran: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    save(root / "lessons" / "other.ipynb", lesson(*FRESH, stamp=None))
    assert run(root, "other") == 0
    assert ran == ["other CPU"]
    assert stamp_of(read(root / "lessons" / "lesson.ipynb")) is None
    assert run(root) == 0
    assert ran == ["other CPU", "lesson CPU"]
    assert run(root, "--all") == 0
    assert ran == ["other CPU", "lesson CPU", "lesson CPU", "other CPU"]
    assert "other: as asked\n" in capsys.readouterr().out
    assert run(root, "other", "anther") == 1
    assert capsys.readouterr().err == f'{(root / "lessons").as_posix()}:1: there is no notebook "anther".\n'
    assert len(ran) == 4


def test_a_project_without_notebooks_has_nothing_to_run(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (root / "mkdocs.yml").write_text("plugins:\n  - annotate: {package: toys}\n", encoding="utf-8")
    assert run(root) == 0
    assert run(root, "lesson") == 1
    assert 'there is no notebook "lesson".' in capsys.readouterr().err


def test_the_address_of_the_package_is_written_into_all_files_without_a_run(root: Path, ran: list[str]) -> None:
    assert run(root) == 0
    assert run(root, "--source", "https://example.org/toys.whl") == 0
    assert ran == ["lesson CPU"]
    for name in ("lesson.ipynb", "lesson.ja.ipynb"):
        notebook = read(root / "lessons" / name)
        assert notebook["cells"][1]["source"] == 'SOURCE = "https://example.org/toys.whl"'
        assert notebooks.why_stale(notebook, root / "toys") == ""


def test_a_stale_run_on_a_gpu_stays_until_there_is_one_again(
    root: Path, ran: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    save(root / "lessons" / "other.ipynb", lesson(*FRESH, stamp=None))
    monkeypatch.setattr(runs, "has_gpu", lambda: True)
    assert run(root, "lesson") == 0
    assert ran == ["lesson CPU", "lesson cuda"]  # and not the other one, which has no run on a GPU either
    old = (root / "lessons" / "lesson.cuda.ipynb").read_bytes()
    (root / "toys" / "toy.py").write_text("X = 2\n", encoding="utf-8")
    monkeypatch.setattr(runs, "has_gpu", lambda: False)
    assert run(root, "lesson") == 0
    assert (root / "lessons" / "lesson.cuda.ipynb").read_bytes() == old
    monkeypatch.setattr(runs, "has_gpu", lambda: True)
    cpu = (root / "lessons" / "lesson.ipynb").read_bytes()
    del ran[:]
    assert run(root) == 0
    assert ran == ["lesson cuda", "other CPU", "other cuda"]
    assert (root / "lessons" / "lesson.cuda.ipynb").read_bytes() != old
    assert (root / "lessons" / "lesson.ipynb").read_bytes() == cpu


def test_a_notebook_that_leaves_the_gpu_alone_is_refused_as_a_run_on_one(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], ran: list[str]
) -> None:
    honest = runs.execute

    def execute(*arguments: Any, **options: Any) -> notebooks.Notebook:
        return honest(*arguments, **options | {"device": "CPU"})

    monkeypatch.setattr(runs, "execute", execute)
    monkeypatch.setattr(runs, "has_gpu", lambda: True)
    assert run(root) == 1
    assert "lesson.cuda.ipynb:1: there is a GPU, and the notebook didn't use it" in capsys.readouterr().err
    assert not (root / "lessons" / "lesson.cuda.ipynb").exists()


# What else is in the way


def test_a_folder_that_cant_be_written_to_is_one_sentence(
    root: Path, ran: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(path: Path, data: bytes) -> int:
        raise PermissionError(13, "Permission denied")

    before = files(root)
    monkeypatch.setattr(Path, "write_bytes", refuse)
    assert run(root) == 1
    assert "lesson.ipynb:1: the notebook can't be written (Permission denied)." in capsys.readouterr().err
    assert files(root) == before


def test_a_broken_catalogue_is_one_sentence(root: Path, ran: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    (root / "locale" / "ja").mkdir(parents=True)
    (root / "locale" / "ja" / "lesson.po").write_text("msgid", encoding="utf-8")
    assert run(root) == 1
    assert "locale/ja/lesson.po:1: " in capsys.readouterr().err


def test_without_nbclient_one_sentence_says_what_to_install(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "nbclient", None)
    path = root / "lessons" / "lesson.ipynb"
    with pytest.raises(NotebookError, match=r"running it needs nbclient: install nbclient, nbformat and ipykernel\."):
        runs.execute(path, read(path), root / "toys")


def test_a_terminal_shows_how_far_a_run_is_on_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    runs.show("cell 1")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    runs.show("cell 2")
    assert capsys.readouterr().out == "cell 1\n\r\x1b[Kcell 2"


@pytest.mark.parametrize(("answer", "there"), [("exit 0", True), ("exit 9", False)])
def test_there_is_a_gpu_if_its_driver_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: str, there: bool
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert not runs.has_gpu()
    (tmp_path / "nvidia-smi").write_text(f"#!/bin/sh\n{answer}\n", encoding="utf-8")
    (tmp_path / "nvidia-smi").chmod(0o755)
    assert runs.has_gpu() == there
