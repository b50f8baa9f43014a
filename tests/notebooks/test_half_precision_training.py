"""The notebook on half-precision training runs, in a small size, leaves nothing behind, and goes on where it was."""

import getpass
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
import torch

from labml_opt import GradScalerFP16
from mkdocs_annotate import notebooks, runs

ROOT = Path(__file__).parents[2]
NAME = "half_precision_training.ipynb"
NOTEBOOK = notebooks.read(ROOT / "notebooks" / NAME)
CODE = {cell["id"]: cell["source"] for cell in NOTEBOOK["cells"] if cell["cell_type"] == "code"}

WATCH = """
import os, sys
log = os.open(os.environ["WATCHED"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
NETWORK = {"socket.connect", "socket.sendto", "socket.sendmsg", "socket.getaddrinfo", "socket.gethostbyname"}
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT

def watch(event, args):
    if event in NETWORK:
        os.write(log, f"network {args[1:]}\\n".encode())
    elif event == "subprocess.Popen":
        os.write(log, f"program {args[1]}\\n".encode())
    elif event == "os.mkdir" or (event == "open" and isinstance(args[0], str) and args[2] & WRITING):
        os.write(log, f"write {os.path.abspath(args[0])}\\n".encode())

sys.addaudithook(watch)
"""


@pytest.fixture(scope="module")
def small_run(tmp_path_factory):
    """The notebook, run with few epochs from a copy outside of the checkout, each cell once more after the last one.

    Python itself tells what the kernel writes and whom it asks. The loop is run twice at once: later it would forget
    what is trained already.
    """
    top = tmp_path_factory.mktemp("elsewhere")
    folders = {name: top / name for name in ("home", "copy", "watch", "jupyter", "temporary")}
    for folder in folders.values():
        folder.mkdir()
    (folders["watch"] / "sitecustomize.py").write_text(WATCH, encoding="utf-8")
    path = folders["copy"] / NAME
    notebook = notebooks.with_parameters(path, NOTEBOOK, {"EPOCHS": 20})
    notebooks.write(notebook, path)
    again = [{**cell, "id": f"{cell['id']}-again"} for cell in notebook["cells"] if cell["cell_type"] == "code"]
    loop = next(number for number, cell in enumerate(notebook["cells"]) if cell["id"] == "loop")
    cells = notebook["cells"][: loop + 1] + [each for each in again if each["id"] == "loop-again"]
    cells += notebook["cells"][loop + 1 :] + [each for each in again if each["id"] != "loop-again"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(folders["home"]))
        patch.setenv("USERPROFILE", str(folders["home"]))
        patch.setenv("PYTHONPATH", str(folders["watch"]))
        patch.setenv("WATCHED", str(top / "watched"))
        patch.setenv("PYTHONDONTWRITEBYTECODE", "1")
        patch.delenv("TORCHINDUCTOR_CACHE_DIR", raising=False)  # which torch.compile leaves behind in another test
        patch.delenv("_", raising=False)  # as it is where no shell has started Jupyter
        for name in ("JUPYTER_RUNTIME_DIR", "JUPYTER_DATA_DIR", "JUPYTER_CONFIG_DIR", "IPYTHONDIR"):
            patch.setenv(name, str(folders["jupyter"]))
        patch.setattr(runs.tempfile, "tempdir", str(folders["temporary"]))
        made = runs.execute(path, {**notebook, "cells": cells}, ROOT / "labml_opt", progress=lambda line: None)
    watched = [line.partition(" ")[::2] for line in (top / "watched").read_text(encoding="utf-8").splitlines()]
    return {**folders, "outputs": {cell["id"]: cell.get("outputs", []) for cell in made["cells"]}, "watched": watched}


def shown(outputs) -> str:
    return "".join(output.get("text", "") + str(output.get("data", {}).get("text/plain", "")) for output in outputs)


# `execute` itself refuses a cell that fails, an assertion that doesn't hold, and a word on stderr.


def test_it_runs_in_a_small_size_and_says_that_there_is_no_gpu(small_run):
    said = shown(small_run["outputs"]["device"])
    assert "There is no CUDA GPU here, so the CPU does FP16." in said
    assert "device CPU" in said
    assert "epoch 20 of 20" in small_run["outputs"]["runs"][0]["data"]["text/html"]
    assert "all equal to the last bit" in shown(small_run["outputs"]["resume-asserted"])


def test_a_cell_that_is_run_twice_shows_the_same_and_trains_nothing_again(small_run):
    outputs = small_run["outputs"]
    for name in CODE:
        first, second = outputs[name], outputs[f"{name}-again"]
        if "train(" in CODE[name] and name != "loop":
            assert "epoch" in str(first)
            assert "epoch" not in str(second).replace("resumed: epoch", "")
        else:
            assert first == second


def test_it_leaves_nothing_in_the_home_nor_beside_itself_nor_in_the_temporary_folder(small_run):
    assert list(small_run["home"].iterdir()) == []
    assert [path.name for path in small_run["copy"].iterdir()] == [NAME]
    assert list(small_run["temporary"].iterdir()) == []


def test_it_writes_into_the_temporary_folder_only(small_run):
    own = [str(small_run[name]) + os.sep for name in ("temporary", "jupyter")]
    written = [path for kind, path in small_run["watched"] if kind == "write"]
    assert any("labml_opt-half_precision_training" in path and path.startswith(own[0]) for path in written)
    assert not [path for path in written if not path.startswith((*own, "/dev/"))]


HARMLESS = r"\['(?:git', 'version'\]|uname'|fc-list')"
"""What packages that it imports ask their computer: which git, processor and fonts are there."""


def test_it_asks_no_other_host_and_starts_no_program_of_its_own(small_run):
    assert not [told for kind, told in small_run["watched"] if kind == "network"]
    assert not [told for kind, told in small_run["watched"] if kind == "program" and not re.match(HARMLESS, told)]
    assert "http" not in str(small_run["outputs"]["tracking"])


# Interrupted


@pytest.fixture(scope="module")
def ways(tmp_path_factory):
    """What came of each way of interrupting it."""
    script = Path(__file__).with_name("interrupted.py")
    command = [sys.executable, str(script), str(ROOT / "notebooks" / NAME), str(tmp_path_factory.mktemp("interrupted"))]
    env = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(command, cwd=script.parent, env=env, capture_output=True, text=True, check=True)
    told = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return {each["way"]: each for each in told}


needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system copies no processes")
ALL, BATCHES = 5 * 2 * 23, 23  # five runs of two epochs


@needs_fork
def test_without_an_interruption_each_step_is_done_once_and_no_checkpoint_stays(ways):
    told = ways["run_twice"]
    assert (told["steps"], told["more"], told["same"], told["left"]) == (ALL, 0, True, [])


@needs_fork
def test_a_cell_that_was_stopped_goes_on_at_its_epoch_and_gives_the_same_numbers(ways):
    """Run again in the same kernel: of all steps only those of the epoch that was stopped are done again."""
    told = ways["interrupted"]
    assert told["stopped"] == ALL - BATCHES + 10
    assert (told["steps"], told["left"]) == (BATCHES, [])
    assert told["result"] == ways["run_twice"]["result"]


@needs_fork
def test_a_kernel_that_was_killed_twice_goes_on_at_its_epoch_and_gives_the_same_numbers(ways):
    """Once in the middle of a step, once in the middle of writing a checkpoint: the one before is whole."""
    for way in ("killed_in_a_step", "killed_while_writing"):
        assert ways[way]["status"] == -9
        assert [name for name in ways[way]["left"] if name.endswith(".pt")]
    assert [name for name in ways["killed_while_writing"]["left"] if name.endswith(".new")]
    told = ways["unbroken"]
    assert (told["steps"], told["left"]) == (ALL - BATCHES, [])
    assert told["result"] == ways["run_twice"]["result"]


@needs_fork  # elsewhere users have names
@pytest.mark.parametrize("missing", [KeyError("getpwuid(): uid not found: 12345"), OSError("No username set")])
def test_a_user_without_a_name_trains_too(monkeypatch, tmp_path, missing):
    """As in a container that is run under a number that it doesn't know."""

    def fail():
        raise missing

    monkeypatch.setattr(getpass, "getuser", fail)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    exec(CODE["loop"], {"torch": torch, "GradScalerFP16": GradScalerFP16, "Path": Path, "tempfile": tempfile})
    assert len(list(tmp_path.iterdir())) == 1


# Where it runs


@pytest.fixture
def pick_device(monkeypatch):
    """The function of the notebook; its cell is run on the CPU first."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    threads = torch.get_num_threads()
    names = {"SEED": 0}
    with torch.random.fork_rng(devices=[]):
        exec(CODE["device"], names)
    torch.set_num_threads(threads)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (8 * 2**30, 16 * 2**30))
    return names["pick_device"]


def test_a_gpu_that_works_is_taken(pick_device, monkeypatch):
    ones = torch.ones
    monkeypatch.setattr(torch, "ones", lambda *shape, device=None, **kwargs: ones(*shape, **kwargs))
    device, why = pick_device()
    assert device == torch.device("cuda")
    assert why == "FP16 is the GPU's own."


def test_a_gpu_with_too_little_memory_is_left_alone(pick_device, monkeypatch):
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (100 * 2**20, 16 * 2**30))
    device, why = pick_device()
    assert device == torch.device("cpu")
    assert why == "The GPU has only 100 MiB free, so the CPU does FP16."


FAILURES = [
    RuntimeError("CUDA error: no kernel image is available for execution on the device\nCompile with TORCH_USE..."),
    torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 MiB."),
    torch.cuda.DeferredCudaCallError("CUDA call failed lazily at initialization with error: device >= 0"),
    RuntimeError(),
]


@pytest.mark.parametrize("place", ["memory", "kernel"])
@pytest.mark.parametrize("failure", FAILURES, ids=lambda error: type(error).__name__)
def test_a_gpu_that_fails_is_left_alone_with_a_reason(pick_device, monkeypatch, place, failure):
    def fail(*args, **kwargs):
        raise failure

    monkeypatch.setattr(*{"memory": (torch.cuda, "mem_get_info"), "kernel": (torch, "ones")}[place], fail)
    device, why = pick_device()
    assert device == torch.device("cpu")
    assert why.startswith("The GPU can't be used (")
    assert why.endswith("), so the CPU does FP16.")
    assert "\n" not in why
    assert str(failure).partition("\n")[0] in why
    assert "()" not in why
