"""The install cell: it leaves torch and NumPy alone, and what stops it is said in one sentence."""

import importlib.metadata
import importlib.util
import os
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path
from types import SimpleNamespace

import pip
import pytest

from mkdocs_annotate import notebooks

ROOT = Path(__file__).parents[2]
CELLS = {
    path.stem: next(cell["source"] for cell in notebooks.read(path)["cells"] if "install" in notebooks.tags(cell))
    for path in notebooks.find(ROOT / "notebooks").values()
}
CELL = CELLS["half_precision_training"]
ORDINARY = {"numpy": "numpy", "sklearn": "scikit-learn", "matplotlib": "matplotlib", "labml": "labml"}


def test_all_notebooks_have_the_same_install_cell():
    assert set(CELLS.values()) == {CELL}


class Machine:
    """A computer on which some packages are installed, and a pip that writes down what it is asked."""

    def __init__(self, patch, folder: Path) -> None:
        self.versions = {"torch": "2.10.0+cu128", "numpy": "2.1.3"}
        self.packages = {"torch", "labml_opt", *ORDINARY}
        self.asked: list[list[str]] = []
        self.answer = SimpleNamespace(returncode=0, stdout="", stderr="")
        patch.chdir(folder)
        patch.setattr(sys, "path", list(sys.path))
        patch.setattr(importlib.util, "find_spec", lambda name: name if name in self.packages else None)
        patch.setattr(importlib.metadata, "version", lambda name: self.versions[name])
        patch.setattr(subprocess, "run", self.pip)

    def pip(self, command, **options):
        assert command[:4] == [sys.executable, "-m", "pip", "install"]
        self.asked.append([word for word in command[4:] if word not in ("-q", "--disable-pip-version-check")])
        return self.answer

    def run(self, source: str = "") -> str:
        """Run the cell; return the sentence that it ends with, if it does."""
        cell = CELL.replace('SOURCE = ""', f'SOURCE = "{source}"', 1)
        try:
            exec(compile(cell, "install", "exec"), {"__name__": "__main__"})
        except Exception as error:
            return "\n".join(error._render_traceback_())
        return ""


@pytest.fixture
def machine(monkeypatch, tmp_path):
    return Machine(monkeypatch, tmp_path)


def test_where_everything_is_there_it_does_nothing(machine):
    before = list(sys.path)
    assert machine.run() == ""
    assert machine.asked == []
    assert sys.path == before


def test_a_missing_torch_is_said_and_nothing_is_installed(machine):
    machine.packages -= {"torch", "labml_opt", "labml"}
    assert machine.run().startswith("torch is missing: install 2.10 or later")
    assert machine.asked == []


@pytest.mark.parametrize("version", ["2.9.1+cu128", "2.9.0", "1.13.1", "2.9.0a0+git1234567"])
def test_a_torch_that_is_too_old_is_said_and_not_replaced(machine, version):
    machine.versions["torch"] = version
    assert machine.run() == f"torch {version} is too old: labml_opt needs 2.10 or later."
    assert machine.asked == []


@pytest.mark.parametrize(
    "version", ["2.10.0", "2.10.0+cpu", "2.11.0a0+git1234567", "2.13.1.dev20261201+cu130", "3.0.0"]
)
def test_a_torch_that_is_new_enough_will_do(machine, version):
    machine.versions["torch"] = version
    assert machine.run() == ""


def test_a_missing_labml_opt_without_an_address_is_said(machine):
    machine.packages.remove("labml_opt")
    assert machine.run() == "labml_opt is missing: write where it is into SOURCE, at the top."
    assert machine.asked == []


@pytest.mark.parametrize(
    "source", ["https://example.org/labml_opt-0.1.0-py3-none-any.whl", "git+https://example.org/labml_opt.git"]
)
def test_from_an_address_the_package_comes_alone(machine, source):
    machine.packages.remove("labml_opt")
    assert machine.run(source) == ""
    assert machine.asked == [["--no-deps", source]]


def test_a_package_that_is_there_is_not_installed_again(machine):
    assert machine.run("https://example.org/labml_opt-0.1.0-py3-none-any.whl") == ""
    assert machine.asked == []


@pytest.mark.parametrize("below", [".", "notebooks", "notebooks/mine"])
def test_in_a_checkout_the_checkout_is_taken_and_nothing_is_installed(machine, tmp_path, monkeypatch, below):
    (tmp_path / "labml_opt").mkdir()
    (tmp_path / "labml_opt" / "adam_fp16.py").touch()
    (tmp_path / below).mkdir(parents=True, exist_ok=True)
    monkeypatch.chdir(tmp_path / below)
    machine.packages.remove("labml_opt")
    assert machine.run("https://example.org/labml_opt-0.1.0-py3-none-any.whl") == ""
    assert machine.asked == []
    assert sys.path[0] == str(tmp_path)


@pytest.mark.parametrize("missing", [["labml"], ["sklearn", "matplotlib", "labml"]])
def test_ordinary_packages_are_installed_beside_the_torch_and_the_numpy_that_are_there(machine, missing):
    machine.packages -= set(missing)
    assert machine.run() == ""
    assert machine.asked == [["torch==2.10.0+cu128", "numpy==2.1.3", *(ORDINARY[name] for name in missing)]]


def test_a_missing_numpy_is_installed_and_only_torch_pinned(machine):
    machine.packages.remove("numpy")
    assert machine.run() == ""
    assert machine.asked == [["torch==2.10.0+cu128", "numpy"]]


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ("ERROR: Could not find a version\nERROR: No matching distribution found for labml\n", "found for labml)."),
        ("/usr/bin/python3: No module named pip\n", "No module named pip)."),
        ("", "pip said nothing)."),
    ],
)
def test_a_pip_that_fails_is_said_with_what_it_was_asked_for_and_its_reason(machine, answer, reason):
    machine.packages -= {"matplotlib", "labml"}
    machine.answer = SimpleNamespace(returncode=1, stdout="", stderr=answer)
    sentence = machine.run()
    assert sentence.startswith("pip can't install torch==2.10.0+cu128 numpy==2.1.3 matplotlib labml (")
    assert sentence.endswith(reason)
    assert "\n" not in sentence


def test_ipython_shows_the_sentence_and_no_traceback(tmp_path):
    code = (
        "import importlib.util, json, sys\n"
        "from IPython.core.interactiveshell import InteractiveShell\n"
        "shell = InteractiveShell()\n"
        "importlib.util.find_spec = lambda name: None\n"
        "shell.run_cell(sys.stdin.read())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        input=CELL,
        cwd=tmp_path,
        env={"PATH": "", "HOME": str(tmp_path), "IPYTHONDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    shown = (done.stdout + done.stderr).strip()
    assert shown == "torch is missing: install 2.10 or later (pytorch.org/get-started), restart."


# With a real pip, and an index of its own


def wheel(folder: Path, name: str, version: str, *needs: str) -> Path:
    """Write a wheel that holds a module with its version, and says what it needs."""
    module, info = name.replace("-", "_"), f"{name.replace('-', '_')}-{version}.dist-info"
    path = folder / f"{module}-{version}-py3-none-any.whl"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr(f"{'sklearn' if name == 'scikit-learn' else module}.py", f"version = {version!r}\n")
        file.writestr(f"{info}/METADATA", metadata + "".join(f"Requires-Dist: {need}\n" for need in needs))
        file.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        file.writestr(f"{info}/RECORD", "")
    return path


def notebook_elsewhere(folder: Path, *, greedy: bool) -> dict[str, str]:
    """Run the cell in an environment with a torch and a NumPy of its own; return what can be imported afterwards.

    The index tempts pip with a newer torch and a newer NumPy; `greedy` says whether a package can't do without.
    """
    venv, index = folder / "venv", folder / "index"
    index.mkdir(parents=True)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True)
    site = Path(sysconfig.get_path("purelib", "venv", {"base": str(venv), "platbase": str(venv)}))
    (site / "pip").symlink_to(Path(pip.__file__).parent, target_is_directory=True)
    for name, version in (("torch", "2.10.0+cu128"), ("numpy", "2.1.3")):
        with zipfile.ZipFile(wheel(folder, name, version)) as file:
            file.extractall(site)
    wheel(index, "torch", "2.13.0", "numpy>=2")
    wheel(index, "numpy", "2.4.6")
    wheel(index, "scikit-learn", "1.9.1", "numpy>=2")
    wheel(index, "matplotlib", "3.11.2", "numpy>=2.4" if greedy else "numpy>=1.25")
    wheel(index, "labml", "0.5.3", "numpy")
    source = wheel(folder, "labml_opt", "0.1.0", "torch>=2.12")
    cell = CELL.replace('SOURCE = ""', f'SOURCE = "{source.as_posix()}"', 1)
    # In the very process that installed them, as in a kernel that isn't started again.
    names = ["torch", "numpy", "sklearn", "matplotlib", "labml", "labml_opt"]
    after = (
        "\nimport importlib.util as u, sys\n"
        f"for name in {names}:\n"
        "    print(name, __import__(name).version if u.find_spec(name) else '', flush=True)\n"
    )
    code = f"try:\n    exec({cell!r}, globals())\nexcept Exception as error:\n    print('said', error){after}"
    python = venv / ("Scripts" if os.name == "nt" else "bin") / "python"
    env = {"PATH": "", "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(index), "PIP_CONFIG_FILE": "", "HOME": str(folder)}
    done = subprocess.run([python, "-c", code], cwd=folder, env=env, capture_output=True, text=True, check=True)
    return dict(line.partition(" ")[::2] for line in done.stdout.splitlines())


def test_torch_and_numpy_stay_and_the_rest_can_be_imported_without_a_restart(tmp_path):
    """The package says that it needs a newer torch, and still brings none."""
    found = notebook_elsewhere(tmp_path, greedy=False)
    assert found == {
        "torch": "2.10.0+cu128",
        "numpy": "2.1.3",
        "sklearn": "1.9.1",
        "matplotlib": "3.11.2",
        "labml": "0.5.3",
        "labml_opt": "0.1.0",
    }


def test_pip_would_rather_fail_than_replace_numpy(tmp_path):
    found = notebook_elsewhere(tmp_path, greedy=True)
    assert found["said"].startswith(
        "pip can't install torch==2.10.0+cu128 numpy==2.1.3 scikit-learn matplotlib labml ("
    )
    assert (found["torch"], found["numpy"], found["matplotlib"]) == ("2.10.0+cu128", "2.1.3", "")
