"""`python3 tasks.py bench`: it runs, keeps what was measured when it is stopped, and leaves the site's file alone."""

import itertools
import json
import subprocess
import sys
from pathlib import Path

import pytest

import benchmarks.__main__ as command
from benchmarks import plan, results

ROOT = Path(__file__).parents[2]


def test_a_quick_run_measures_and_writes_a_file(tmp_path):
    out = tmp_path / "quick.json"
    wanted = "AdamFP16 float16 against labml_nn"
    arguments = ["--quick", "--only", wanted, "--out", str(out)]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", *arguments], cwd=ROOT, capture_output=True, text=True, check=True
    )
    whole = results.load(out)
    assert whole["quick"]
    assert not whole["complete"], "it was asked for a part"
    ran = [record for record in whole["results"] if "ratio" in record]
    assert [record["job"]["tensors"] for record in ran] == [4, 500]
    assert {record["pairs"] for record in ran} == {2}
    assert done.stdout.count("AdamFP16 float16 against labml_nn AdamFP16 float16: ") == 2
    assert "readable-4" in done.stdout
    assert str(out) in done.stdout


class Told:
    """In place of the processes that measure: answers what it is told."""

    def __init__(self, answers):
        self.answers = answers
        self.folder = self

    def measure(self, job):
        answer = next(self.answers)
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def stop(self):
        pass

    cleanup = stop


@pytest.fixture
def told(monkeypatch):
    def tell(*answers):
        monkeypatch.setattr(command, "Workers", lambda environment: Told(iter(answers)))

    return tell


RATIO = {"pairs": 2, "ratio": {"median": 1.0, "q1": 1.0, "q3": 1.0}, "ratio_of_medians": 1.0}
RATIO["seconds"] = {"a": RATIO["ratio"], "b": RATIO["ratio"]}


def test_ctrl_c_keeps_what_was_measured(told, tmp_path, capsys):
    told(RATIO, RATIO, KeyboardInterrupt())
    whole = command.measure(plan.Scope.small(), 9.0, tmp_path / "out.json", "here", only="against")
    assert "stopped: 2 of " in capsys.readouterr().out
    assert (whole["complete"], len(whole["results"])) == (False, 2)
    assert json.loads((tmp_path / "out.json").read_text(encoding="utf-8"))["results"][0]["pairs"] == 2


def test_what_is_missing_is_said_once_and_is_no_failure(told, tmp_path, capsys):
    told(*itertools.repeat({"missing": "optimi.Adam: the package optimi is not installed"}, 500))
    whole = command.measure(plan.Scope.small(), 9.0, tmp_path / "out.json", "here", only="optimi")
    assert capsys.readouterr().out.count("is not installed") <= 1 + len(command.CONTESTANTS)
    assert {tuple(record) for record in whole["results"]} == {("job", "missing")}
    assert whole["failed"] == []


def test_what_fails_is_named_and_the_others_go_on(told, tmp_path, capsys):
    told({"failed": "RuntimeError: no"}, *[RATIO] * 500)
    whole = command.measure(plan.Scope.small(), 9.0, tmp_path / "out.json", "here", only="foreach=True")
    assert len([record for record in whole["results"] if "ratio" in record]) == len(whole["results"]) - 1 > 1
    assert whole["failed"] == ["torch-foreach/float32: RuntimeError: no"]
    assert "-- RuntimeError: no" in capsys.readouterr().out


def test_when_the_time_is_over_the_rest_is_listed_as_not_measured(told, tmp_path, capsys):
    told()
    whole = command.measure(plan.Scope.small(), 0.0, tmp_path / "out.json", "here", only="foreach")
    assert whole["missing"] == ["out of time after 0 minutes"]
    assert capsys.readouterr().out.count("out of time") == 1


@pytest.mark.parametrize(
    ("arguments", "name"),
    [([], "results.json"), (["--bars"], "bench-part.json"), (["--quick"], "bench-quick.json")],
)
def test_only_a_whole_run_takes_the_place_of_the_sites_file(arguments, name, monkeypatch):
    written = []

    def measure(scope, minutes, out, *rest):
        written.append(out.name)
        return {"bars": [], "bandwidth": [], "failed": [], "complete": True}

    monkeypatch.setattr(command, "measure", measure)
    assert command.main(arguments) == 0
    assert written == [name]


def test_a_process_that_dies_is_a_failure_of_its_job_alone(monkeypatch):
    workers = command.Workers({})
    monkeypatch.setattr(command.sys, "executable", "false")
    job = {"kind": "memory", "threads": 1}
    assert workers.measure(job) == {"failed": "the process that measured ended with status 1"}
    assert workers.process is None
    workers.folder.cleanup()
