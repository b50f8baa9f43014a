"""Both distributions build into wheels that hold all they need, from the files that git knows and from no others."""

import importlib.metadata
import os
import shutil
import subprocess
import sys
import zipfile
from email.parser import HeaderParser
from pathlib import Path
from types import SimpleNamespace

import pytest

ROOT = Path(__file__).parents[2]


def tracked(*folders: str) -> list[str]:
    listed = subprocess.run(["git", "ls-files", "-z", *folders], cwd=ROOT, capture_output=True, text=True, check=True)
    return [name for name in listed.stdout.split("\0") if name and (ROOT / name).exists()]


@pytest.fixture(scope="module")
def checkout(tmp_path_factory):
    """A copy of what git knows, without what builds and editable installations leave behind."""
    folder = tmp_path_factory.mktemp("checkout")
    for name in tracked("labml_opt", "mkdocs_annotate", "pyproject.toml", "README.md", "LICENSE"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, folder / name)
    return folder


def built(checkout: Path, project: str) -> SimpleNamespace:
    out = checkout / "wheels" / project
    pip = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--no-deps",
        "--no-build-isolation",
        "--no-index",
        "-q",
        "-w",
        str(out),
    ]
    subprocess.run([*pip, str(checkout / project)], check=True)
    (wheel,) = out.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        (metadata,) = (name for name in names if name.endswith(".dist-info/METADATA"))
        headers = HeaderParser().parsestr(archive.read(metadata).decode())
    return SimpleNamespace(path=wheel, files={name for name in names if ".dist-info/" not in name}, headers=headers)


@pytest.fixture(scope="module")
def package(checkout):
    return built(checkout, ".")


@pytest.fixture(scope="module")
def engine(checkout):
    return built(checkout, "mkdocs_annotate")


def test_the_package_holds_every_file_of_its_folder_and_no_other(package):
    assert package.files == set(tracked("labml_opt"))


def test_the_engine_holds_every_file_of_its_folder_and_no_other(engine):
    assert engine.files == set(tracked("mkdocs_annotate")) - {"mkdocs_annotate/pyproject.toml"}


def test_both_say_that_they_are_typed(package, engine):
    assert "labml_opt/py.typed" in package.files
    assert "mkdocs_annotate/py.typed" in engine.files


def test_the_package_needs_torch_alone(package):
    required = [line for line in package.headers.get_all("Requires-Dist") if "extra ==" not in line]
    assert required == ["torch>=2.10"]


def test_the_engine_needs_neither_torch_nor_the_package(engine):
    assert not [line for line in engine.headers.get_all("Requires-Dist") if line.startswith(("torch", "labml"))]


def test_the_licence_goes_along(package):
    assert package.headers["License-Expression"] == "MIT"
    assert "licenses/LICENSE" in " ".join(zipfile.ZipFile(package.path).namelist())


def test_the_engines_wheel_works_where_it_is_unpacked(engine, tmp_path):
    with zipfile.ZipFile(engine.path) as archive:
        archive.extractall(tmp_path)
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}
    where = "import mkdocs_annotate.plugin as p; print(p.__file__)"
    done = subprocess.run(
        [sys.executable, "-P", "-c", where], cwd=tmp_path, env=env, capture_output=True, text=True, check=True
    )
    assert Path(done.stdout.strip()) == tmp_path / "mkdocs_annotate" / "plugin.py"


def test_mkdocs_finds_the_engine():
    (entry,) = (e for e in importlib.metadata.entry_points(group="mkdocs.plugins") if e.name == "annotate")
    assert entry.value == "mkdocs_annotate.plugin:AnnotatePlugin"
