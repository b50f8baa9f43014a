"""`tasks.py`: what it installs and when, what it says when it can't, and that it calls the right tools."""

import ast
import importlib.metadata
import importlib.util
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ".venv/lib/python3.11/site-packages"
NEEDED = ("pyproject.toml", "mkdocs_annotate/pyproject.toml", "package.json", "package-lock.json")


def load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("tasks", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules["tasks"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def house(tmp_path, monkeypatch):
    """tasks.py in a repository of its own, whose commands are written down instead of run."""
    for name in NEEDED:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    for name in ("PIP_CONSTRAINT", "TORCH_INDEX"):
        monkeypatch.delenv(name, raising=False)
    tasks = load(ROOT / "tasks.py")
    ran, failing = [], set()

    def run(setup, *command):
        quiet = {"-q"} if "pip" in command else set()  # pip is not, in a terminal
        ran.append(" ".join(part for part in command if part not in quiet))
        if "ci" in command:
            shutil.rmtree(tmp_path / "node_modules", ignore_errors=True)
            put("node_modules/katex/package.json", "node_modules/katex/dist/katex.mjs")
            put("node_modules/katex/dist/fonts/KaTeX_Main-Regular.woff2")
            put("node_modules/@fontsource/source-serif-4/package.json")
            put("node_modules/@fontsource/source-serif-4/files/source-serif-4-latin-400-normal.woff2")
        if "./mkdocs_annotate" in command:
            put(f"{PACKAGES}/material/__init__.py", f"{PACKAGES}/mkdocs_material-9.8.2.dist-info/METADATA")
        return int(any(part in " ".join(command) for part in failing))

    def put(*names):
        for name in names:
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).touch()

    def make_venv(venv):
        ran.append(f"install anew: {venv.name}")
        shutil.rmtree(venv, ignore_errors=True)
        tasks.python_of(venv).parent.mkdir(parents=True)
        tasks.python_of(venv).touch()

    def build_wheel(setup):
        put(".cache/wheel/package.whl", "site/index.html", "elsewhere/index.html")
        return tmp_path / ".cache/wheel/package.whl"

    monkeypatch.setattr(tasks, "ROOT", tmp_path)
    monkeypatch.setattr(tasks, "run", run)
    monkeypatch.setattr(tasks, "make_venv", make_venv)
    monkeypatch.setattr(tasks, "build_wheel", build_wheel)
    monkeypatch.setattr(tasks, "has_pip", lambda venv: True)
    monkeypatch.setattr(tasks, "node_is_new_enough", lambda env: True)
    monkeypatch.setattr(tasks.shutil, "which", lambda name, path=None: name)

    def call(*arguments):
        ran.clear()
        status = tasks.main(list(arguments))
        return status, [line for line in ran if "install" in line or " ci" in line], list(ran)

    return SimpleNamespace(tasks=tasks, root=tmp_path, call=call, failing=failing)


def test_without_a_command_the_commands_are_listed():
    done = subprocess.run([sys.executable, "tasks.py"], cwd=ROOT, capture_output=True, text=True, check=True)
    assert set(re.findall(r"^  (\S+)  ", done.stdout, re.M)) == set(load(ROOT / "tasks.py").COMMANDS)


def test_an_unknown_command_fails_and_is_named():
    done = subprocess.run([sys.executable, "tasks.py", "brew"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "no command 'brew'" in done.stderr


def test_an_old_python_can_read_the_file_and_is_told_which_one_is_needed():
    ast.parse((ROOT / "tasks.py").read_text(encoding="utf-8"), feature_version=(3, 7))
    pretend = "import runpy, sys; sys.version_info = (3, 10, 4); runpy.run_path('tasks.py')"
    done = subprocess.run([sys.executable, "-c", pretend], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "needs Python 3.11 or later, and this is Python 3.10" in done.stderr


@pytest.mark.parametrize("module", ["venv", "ensurepip"])
def test_a_system_without_venv_or_ensurepip_is_told_what_to_install(module, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(SystemExit, match=rf"without the module {module}.*apt-get install python3-venv"):
        load(ROOT / "tasks.py").make_venv(tmp_path / ".venv")
    assert not (tmp_path / ".venv").exists()


def test_only_the_standard_library_is_imported():
    tree = ast.parse((ROOT / "tasks.py").read_text(encoding="utf-8"))
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    imported |= {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert {name.partition(".")[0] for name in imported} <= sys.stdlib_module_names


def needed_by(requirements: list[str]) -> set[str]:
    """The names of all distributions that the requirements bring, as far as they are installed here."""
    names, waiting = set(), [requirement for requirement in requirements if not requirement.startswith("-")]
    while waiting:
        requirement = waiting.pop()
        name = re.match(r"[\w.-]+", requirement).group().lower().replace("_", "-")
        if name in names or "extra ==" in requirement:
            continue
        names.add(name)
        try:
            waiting += importlib.metadata.requires(name) or []
        except importlib.metadata.PackageNotFoundError:
            assert "; " in requirement or ";" in requirement, f"{requirement} is needed and not installed"
    return names


def test_the_site_is_set_up_without_torch():
    requirements = load(ROOT / "tasks.py").SITE.requirements()
    requirements[requirements.index("./mkdocs_annotate")] = "mkdocs-annotate"
    names = needed_by(requirements)
    assert {"mkdocs", "mkdocs-annotate", "babel"} <= names
    assert not {name for name in names if name.startswith(("torch", "nvidia", "labml"))}


def test_the_first_call_installs_and_the_second_does_not(house):
    status, installed, ran = house.call("site")
    assert status == 0
    assert installed == [
        "install anew: .venv",
        "python -m pip install --disable-pip-version-check " + " ".join(house.tasks.SITE.requirements()),
        "npm ci --omit=dev --loglevel=error",
    ]
    assert ran == [*installed, "python -m mkdocs build --strict"]
    assert house.call("site") == (0, [], ["python -m mkdocs build --strict"])
    assert house.call("serve") == (0, [], ["python -m mkdocs serve"])


def test_what_the_tests_need_serves_the_site_and_not_the_other_way_round(house):
    house.call("site")
    assert len(house.call("test")[1]) == 2
    assert house.call("site")[1] == []


@pytest.mark.parametrize("name", NEEDED)
def test_a_changed_file_installs_again_and_only_what_it_lists(house, name):
    house.call("test")
    (house.root / name).write_text((house.root / name).read_text() + "\n")
    (installed,) = house.call("test")[1]
    assert installed.startswith("python -m pip" if name.endswith(".toml") else "npm ci")
    assert house.call("test")[1] == []


def test_a_moved_repository_installs_again(house, monkeypatch, tmp_path_factory):
    house.call("test")
    moved = shutil.copytree(house.root, tmp_path_factory.mktemp("elsewhere") / "copy")
    monkeypatch.setattr(house.tasks, "ROOT", moved)
    assert len(house.call("test")[1]) == 1


def test_another_constraint_installs_again(house, monkeypatch, tmp_path):
    constraint = tmp_path / "constraint.txt"
    monkeypatch.setenv("PIP_CONSTRAINT", str(constraint))
    constraint.write_text("torch==2.13.0")
    house.call("test")
    assert house.call("test")[1] == []
    constraint.write_text("torch==2.14.0")
    assert len(house.call("test")[1]) == 1


def test_a_failed_installation_stops_and_is_tried_again(house):
    house.failing.add("pip install")
    with pytest.raises(SystemExit, match="installing the Python packages failed"):
        house.call("site")
    house.failing.clear()
    house.failing.add("npm ci")
    with pytest.raises(SystemExit, match="installing the packages of npm failed"):
        house.call("site")
    house.failing.clear()
    assert house.call("site")[1] == ["npm ci --omit=dev --loglevel=error"]


BROKEN_OFF = """
import os, pathlib, signal, subprocess, sys, types, tasks

def run(command, **options):
    subprocess.run([*command, "--without-pip"], **options)
    os.kill(os.getpid(), signal.SIGKILL)

tasks.subprocess = types.SimpleNamespace(run=run)
tasks.make_venv(pathlib.Path(sys.argv[1]))
"""


@pytest.mark.skipif(os.name == "nt", reason="Windows has no SIGKILL")
def test_an_environment_whose_making_was_broken_off_is_made_anew(tmp_path):
    """Killed when its Python was there already and its pip was not."""
    tasks, venv = load(ROOT / "tasks.py"), tmp_path / ".venv"
    making = subprocess.run([sys.executable, "-c", BROKEN_OFF, str(venv)], cwd=ROOT, check=False)
    assert making.returncode == -signal.SIGKILL
    assert tasks.python_of(venv).exists()
    assert not tasks.has_pip(venv)
    assert (venv / tasks.UNFINISHED).exists()
    tasks.make_venv(venv)
    assert tasks.has_pip(venv)
    assert not (venv / tasks.UNFINISHED).exists()


def test_an_unfinished_environment_is_not_installed_into(house):
    house.tasks.make_venv(house.root / ".venv")
    (house.root / ".venv" / house.tasks.UNFINISHED).touch()
    assert house.call("site")[1][0] == "install anew: .venv"
    assert house.call("site")[1] == []


def test_an_environment_without_pip_gets_one_and_keeps_what_it_has(house, monkeypatch):
    house.tasks.make_venv(house.root / ".venv")
    monkeypatch.setattr(house.tasks, "has_pip", lambda venv: False)
    _, (first, *_), ran = house.call("site")
    assert ran[0] == "python -m ensurepip --default-pip"
    assert first.startswith("python -m pip install")


@pytest.mark.parametrize("lost", ["material", "mkdocs_material-9.8.2.dist-info"])
def test_an_environment_that_lost_a_package_is_made_anew(house, lost):
    house.call("site")
    shutil.rmtree(house.root / PACKAGES / lost)
    anew, pip = house.call("site")[1]
    assert anew == "install anew: .venv"
    assert pip.startswith("python -m pip install")
    assert house.call("site")[1] == []


def test_an_environment_whose_python_has_gone_is_made_anew(house):
    house.call("site")
    house.tasks.python_of(house.root / ".venv").unlink()
    assert house.call("site")[1][0] == "install anew: .venv"


def test_a_package_upgraded_by_hand_is_not_lost(house):
    house.call("site")
    (house.root / PACKAGES / "mkdocs_material-9.8.2.dist-info").rename(
        house.root / PACKAGES / "mkdocs_material-9.9.dist-info"
    )
    assert house.call("site")[1] == []


@pytest.mark.parametrize(
    "lost",
    [
        "katex",
        "katex/dist/katex.mjs",
        "katex/dist/fonts/KaTeX_Main-Regular.woff2",
        "@fontsource",
        "@fontsource/source-serif-4/files",
    ],
)
def test_what_the_site_takes_from_npm_is_installed_again_if_it_is_lost(house, lost):
    house.call("site")
    (house.root / "node_modules" / lost).rename(house.root / "lost")
    assert house.call("site")[1] == ["npm ci --omit=dev --loglevel=error"]
    assert house.call("site")[1] == []


def test_another_index_is_used_for_torch_alone(house, monkeypatch):
    monkeypatch.setenv("TORCH_INDEX", "https://wheels.example/cpu")
    _, first, second, _ = house.call("test")[1]
    assert first.endswith("--index-url https://wheels.example/cpu torch")
    assert "wheels.example" not in second


@pytest.mark.parametrize(
    ("version", "enough"), [("v18.19.0", False), ("v20.0.0", True), ("v24.1.0", True), ("", False)]
)
def test_a_node_is_new_enough_from_version_20_on(version, enough, monkeypatch):
    tasks = load(ROOT / "tasks.py")
    monkeypatch.setattr(tasks.shutil, "which", lambda name, path=None: name)
    answer = SimpleNamespace(stdout=version + "\n")
    monkeypatch.setattr(tasks.subprocess, "run", lambda *arguments, **options: answer)
    assert tasks.node_is_new_enough({"PATH": ""}) is enough


def test_without_such_a_node_one_is_installed_from_pypi(house, monkeypatch):
    monkeypatch.setattr(house.tasks, "node_is_new_enough", lambda env: False)
    *_, node, packages = house.call("site")[1]
    assert node.endswith("-e ./mkdocs_annotate[node]")
    assert packages.startswith("npm ci")


def test_the_programs_of_the_environment_come_first_on_the_path(house):
    env = house.tasks.environment(house.tasks.SITE)
    assert env["PATH"].startswith(str(house.tasks.programs(house.root / ".venv")))


def test_programs_lie_where_windows_has_them(monkeypatch):
    tasks = load(ROOT / "tasks.py")
    monkeypatch.setattr(tasks, "os", SimpleNamespace(name="nt"))
    assert tasks.python_of(Path(".venv")) == Path(".venv/Scripts/python.exe")


def test_check_oldest_lifts_the_constraint_in_an_environment_of_its_own(house, monkeypatch):
    monkeypatch.setenv("PIP_CONSTRAINT", "constraint.txt")
    _, (_, pip, _), ran = house.call("check-oldest")
    assert pip.endswith(" torch==2.10.*")
    assert ran[-1] == "python -m pytest -q -n auto --maxprocesses 8 tests/labml_opt"
    assert "PIP_CONSTRAINT" not in house.tasks.environment(house.tasks.OLDEST)
    assert "PIP_CONSTRAINT" in house.tasks.environment(house.tasks.FULL)
    assert house.tasks.OLDEST.venv != house.tasks.FULL.venv


def test_the_benchmarks_add_other_peoples_optimizers_to_what_is_there_and_need_nothing_of_npm(house):
    house.call("test")
    assert house.call("bench")[1] == ["python -m pip install --disable-pip-version-check -e .[bench] torch"]
    assert house.call("bench")[1] == []
    assert house.call("test")[1] == []


@pytest.mark.parametrize(
    ("command", "tool"),
    [
        ("site", "mkdocs build --strict"),
        ("serve", "mkdocs serve"),
        ("test", "pytest -q -n auto --maxprocesses 8"),
        ("check-oldest", "pytest -q -n auto --maxprocesses 8"),
        ("translate", "mkdocs_annotate translate"),
        ("figures", "labml_opt.figures"),
        ("bench", "benchmarks"),
    ],
)
def test_what_follows_a_command_is_handed_on(house, command, tool):
    assert house.call(command, "one", "-k", "two words")[2][-1] == f"python -m {tool} one -k two words"


def test_check_runs_every_check_and_fails_if_one_does(house, capsys):
    house.failing.add("mypy")
    status, _, ran = house.call("check")
    assert status == 1
    assert [line for line in ran if "install" not in line and "npm" not in line] == [
        "python -m ruff check .",
        "python -m ruff format --check .",
        "python -m mypy",
        "python -m mkdocs_annotate check",
    ]
    assert "failed: mypy\n" in capsys.readouterr().out
    house.failing.clear()
    assert house.call("check")[0] == 0


@pytest.mark.parametrize("command", ["site", "test"])
def test_the_exit_status_is_that_of_the_tool(house, command):
    house.failing.update(["mkdocs build", "pytest"])
    assert house.call(command)[0] == 1


def test_the_makefile_has_every_command():
    commands = re.search(r"^COMMANDS = (.*)$", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M).group(1).split()
    assert commands == list(load(ROOT / "tasks.py").COMMANDS)
