"""The taught package and the site engine know nothing of each other, and nothing is imported that a user may lack."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = sorted((ROOT / "labml_opt").rglob("*.py"))
ENGINE = sorted((ROOT / "mkdocs_annotate").rglob("*.py"))
NOT_FOR_THE_PACKAGE = {"mkdocs_annotate", "mkdocs", "markdown", "pygments", "labml", "labml_nn", "IPython", "sklearn"}
MAY_IMPORT = {"configs.py": {"labml"}, "experiments/digits.py": {"labml", "sklearn"}}
"""Who needs what a user may lack, and says so in a sentence. Nothing else of the package imports these modules."""
NOT_FOR_THE_ENGINE = {"labml_opt", "torch", "numpy", "matplotlib"}
KNOW_MKDOCS = {"plugin.py", "languages.py", "jupyter.py"}


def imported_by(path: Path, *, at_import_time: bool = False) -> set[str]:
    """Top-level names of the modules that a file imports: anywhere in it, or outside its functions only."""
    names, waiting = set(), [ast.parse(path.read_text(encoding="utf-8"))]
    while waiting:
        node = waiting.pop()
        if at_import_time and isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names.add(node.module.partition(".")[0])
        waiting += ast.iter_child_nodes(node)
    return names


def loaded_by(statement: str) -> set[str]:
    """Top-level modules that are there after a statement, in a fresh Python."""
    code = f"{statement}\nimport sys; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    return {name.partition(".")[0] for name in done.stdout.split()}


@pytest.mark.parametrize("path", PACKAGE, ids=lambda path: path.name)
def test_the_package_imports_nothing_of_the_site(path):
    allowed = MAY_IMPORT.get(path.relative_to(ROOT / "labml_opt").as_posix(), set())
    assert imported_by(path) & NOT_FOR_THE_PACKAGE == allowed


def test_the_experiment_imports_what_a_user_may_lack_only_where_it_is_needed():
    assert not imported_by(ROOT / "labml_opt" / "experiments" / "digits.py", at_import_time=True) & NOT_FOR_THE_PACKAGE


@pytest.mark.parametrize("path", ENGINE, ids=lambda path: path.name)
def test_the_engine_imports_nothing_of_the_package(path):
    assert not imported_by(path) & NOT_FOR_THE_ENGINE


@pytest.mark.parametrize("path", PACKAGE, ids=lambda path: path.name)
def test_the_package_imports_matplotlib_only_where_it_draws(path):
    assert "matplotlib" not in imported_by(path, at_import_time=True)


@pytest.mark.parametrize("path", [path for path in ENGINE if path.name not in KNOW_MKDOCS], ids=lambda path: path.name)
def test_only_the_plugin_the_languages_and_the_notebooks_know_mkdocs(path):
    assert not imported_by(path, at_import_time=True) & {"mkdocs"}


def test_the_plugin_is_thin():
    assert len((ROOT / "mkdocs_annotate" / "plugin.py").read_text(encoding="utf-8").splitlines()) < 150


def test_importing_the_package_loads_torch_and_nothing_of_the_site():
    loaded = loaded_by("import labml_opt")
    assert "torch" in loaded
    assert not loaded & (NOT_FOR_THE_PACKAGE | {"matplotlib"})


def test_importing_the_engine_loads_no_torch():
    modules = ", ".join(f"mkdocs_annotate.{path.stem}" for path in ENGINE if not path.name.startswith("__"))
    assert not loaded_by(f"import {modules}") & NOT_FOR_THE_ENGINE
