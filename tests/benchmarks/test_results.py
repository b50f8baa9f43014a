"""The file of results: its shape, its verdicts, and what it knows of its origin."""

import json

import pytest

from benchmarks import plan, provenance, results
from benchmarks.bars import BARS

SCOPE = plan.Scope(bars_only=True)
SPREAD = {"median": 1.5, "q1": 1.4, "q3": 1.6}


def measured(job):
    """What a worker answers, invented."""
    if job["kind"] == "pair":
        figures = {"pairs": 15, "ratio": SPREAD, "ratio_of_medians": 1.5, "seconds": {"a": SPREAD, "b": SPREAD}}
    else:
        figures = {"state": 1e-7, "params": 0.0, "values": 9.0, "seconds": 3.0, "at_rest": 12.0, "after_unscale": 14.0}
    return {"job": job, **figures}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    path = tmp_path_factory.mktemp("results") / "results.json"
    records = [measured(job) for job in plan.jobs(SCOPE)]
    results.write(path, provenance.begin("python3 tasks.py bench"), records, SCOPE, complete=True)
    return results.load(path)


def check(whole):
    """Hold a file to what the site and the reports read in it."""
    assert whole["format"] == results.FORMAT
    assert {type(whole[key]) for key in ("quick", "complete")} == {bool}
    assert [row["name"] for row in whole["bars"]] == [bar.name for bar in BARS]
    for row in whole["bars"]:
        assert (row["measured"] is None) == ("why" in row), row
        assert row["passed"] in (True, False, None)
        assert ("a" in row and row["measured"] is not None) == ("quartiles" in row)
    for record in whole["results"]:
        assert record["job"]["kind"] in ("pair", "agreement", "memory", "first_step")
        if "ratio" in record:
            assert record["ratio"]["q1"] <= record["ratio"]["median"] <= record["ratio"]["q3"]
            assert record["job"]["least"] <= record["pairs"] <= record["job"]["most"]
        else:
            assert record.keys() & {"missing", "failed", "state", "seconds", "at_rest"}
    told = whole["provenance"]
    assert set(told) >= {"date", "command", "machine", "torch", "python", "load_at_start", "load_at_end", "digest"}
    assert set(told["machine"]) == {"cpu", "cores", "memory_gib", "system"}
    assert told["machine"]["cores"] >= 1
    assert "labml_opt.adam_fp16" in told["modules"]


def test_a_file_has_the_shape_that_is_read_everywhere(whole):
    check(whole)


def test_the_stored_file_has_the_shape_that_is_read_everywhere():
    stored = results.load()
    check(stored)
    assert not stored["quick"]


def test_the_stored_file_was_measured_with_the_code_that_is_here():
    stored = results.load()
    if not stored["complete"]:
        pytest.skip("the stored measurements are preliminary; `python3 tasks.py bench` makes them anew")
    assert results.stale(stored) == [], "run `python3 tasks.py bench` on a quiet machine"


def test_code_that_has_changed_since_is_named(whole):
    assert results.stale(whole) == []
    modules = {**whole["provenance"]["modules"], "labml_opt.adam": "another digest"}
    assert results.stale({"provenance": {"modules": modules}}) == ["labml_opt.adam"]


def test_a_row_has_the_figure_of_its_own_job(whole):
    rows = {row["name"]: row for row in whole["bars"]}
    assert (rows["fp16-1e7"]["measured"], rows["fp16-1e7"]["quartiles"]) == (1.5, [1.4, 1.6])
    assert (rows["fp16-1e7"]["passed"], rows["ancestor-4"]["passed"]) == (True, False)
    assert rows["first-step-cold-4"]["measured"] == 3.0
    assert rows["bytes-unscale-after_unscale-4"]["measured"] == 14.0


def test_the_worst_optimizer_decides_on_agreement():
    jobs = plan.jobs(SCOPE)
    records = [measured(job) for job in jobs]
    worst = next(record for record in records if record["job"]["kind"] == "agreement")
    worst["state"] = 1e-3
    rows = {row["name"]: row for row in results.bar_rows(records, SCOPE)}
    assert (rows["agreement-state"]["measured"], rows["agreement-state"]["passed"]) == (1e-3, False)


def test_a_bar_whose_figure_is_missing_gives_the_reason():
    records = [measured(job) for job in plan.jobs(SCOPE)][1:]
    records[-1] = {"job": records[-1]["job"], "failed": "MemoryError: no more"}
    rows = {row["name"]: row for row in results.bar_rows(records, SCOPE)}
    assert (rows["fp16-1e7"]["measured"], rows["fp16-1e7"]["why"]) == (None, "not measured")


def test_the_bandwidth_is_12_bytes_a_value_in_the_time_of_an_addition():
    job = next(job for job in plan.jobs(SCOPE) if job.get("a") == {"key": "stream/float32"})
    (row,) = results.bandwidth([{"job": job, "seconds": {"a": {"median": 0.25}}}])
    assert row["bytes_per_second"] == 12 * job["values"] / 0.25


def test_a_file_of_another_format_is_refused(tmp_path):
    path = tmp_path / "results.json"
    path.write_text(json.dumps({"format": 0}))
    with pytest.raises(ValueError, match="format 0, and this program reads 1: measure again"):
        results.load(path)


def test_a_record_stands_on_a_line_of_its_own(tmp_path):
    path = tmp_path / "results.json"
    records = [measured(job) for job in plan.jobs(SCOPE)]
    results.write(path, provenance.begin("here"), records, SCOPE, complete=False)
    lines = path.read_text(encoding="utf-8").splitlines()
    assert sum('"job"' in line for line in lines) == len(records)
    assert json.loads(path.read_text(encoding="utf-8"))["complete"] is False
