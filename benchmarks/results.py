"""The file of results: what was measured, what came of each bar, and the provenance of all of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks import plan, provenance
from benchmarks.bars import BARS, Bar

FORMAT = 1
ROOT = Path(__file__).resolve().parent.parent
FILE = ROOT / "benchmarks" / "results.json"
Record = dict[str, Any]


def bar_rows(records: list[Record], scope: plan.Scope) -> list[Record]:
    """Return a row for each bar: the figure, its quartiles and the verdict, or the reason why there is none."""
    by_job = {plan.identity(record["job"]): record for record in records}
    return [_row(bar, [by_job.get(plan.identity(job)) for job in plan.jobs_of(bar, scope)]) for bar in BARS]


def _row(bar: Bar, found: list[Record | None]) -> Record:
    row: Record = {"name": bar.name, "bar": bar.bar, "aim": bar.aim, "more_is_better": bar.more_is_better}
    row |= {key: bar.job[key] for key in ("a", "b", "key", "values", "tensors", "threads", "cache") if key in bar.job}
    why = [record.get("missing") or record.get("failed") if record else "not measured" for record in found]
    if any(why):
        return {**row, "measured": None, "passed": None, "why": next(reason for reason in why if reason)}
    figures = [record["ratio"] if bar.kind == "pair" else record[bar.figure] for record in found if record]
    if bar.kind == "pair":
        (record,) = [record for record in found if record]
        measured, spread = figures[0]["median"], [figures[0]["q1"], figures[0]["q3"]]
        row |= {"quartiles": spread, "pairs": record["pairs"], "ratio_of_medians": record["ratio_of_medians"]}
    else:
        measured = max(figures)
    return {**row, "measured": measured, "passed": bar.verdict(measured)}


def bandwidth(records: list[Record]) -> list[Record]:
    """Return what `a.add_(b)` moved a second, for each number of threads."""
    rows = {}
    for record in records:
        job = record["job"]
        if job["kind"] == "pair" and job["a"]["key"] == "stream/float32" and "seconds" in record:
            seconds = record["seconds"]["a"]["median"]
            rows[job["threads"]] = {
                "threads": job["threads"],
                "values": job["values"],
                "bytes_per_second": 12 * job["values"] / seconds,
            }
    return list(rows.values())


def write(path: Path, origin: Record, records: list[Record], scope: plan.Scope, complete: bool) -> Record:
    """Write the file, a record a line, and return what it holds."""
    whole = {
        "format": FORMAT,
        "quick": scope.quick,
        "complete": complete,
        "provenance": {**origin, "load_at_end": provenance.load()},
        "bandwidth": bandwidth(records),
        "bars": bar_rows(records, scope),
        "missing": sorted({record["missing"] for record in records if "missing" in record}),
        "failed": sorted({f"{_who(record['job'])}: {record['failed']}" for record in records if "failed" in record}),
        "results": records,
    }
    parts = []
    for key, value in whole.items():
        if isinstance(value, list) and value and isinstance(value[0], dict):
            lines = ",\n".join(f"  {json.dumps(_rounded(item))}" for item in value)
            parts.append(f" {json.dumps(key)}: [\n{lines}\n ]")
        else:
            parts.append(f" {json.dumps(key)}: {json.dumps(_rounded(value))}")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("{\n" + ",\n".join(parts) + "\n}\n", encoding="utf-8", newline="\n")
    return whole


def load(path: Path = FILE) -> Record:
    """Read a file of results."""
    whole: Record = json.loads(path.read_text(encoding="utf-8"))
    if whole.get("format") != FORMAT:
        raise ValueError(f"{path}: format {whole.get('format')!r}, and this program reads {FORMAT}: measure again")
    return whole


def stale(whole: Record) -> list[str]:
    """Return the modules that compute something else today than when they were measured."""
    then, now = whole["provenance"]["modules"], provenance.sources()
    return sorted({name for name, _ in set(then.items()) ^ set(now.items())})


def _who(job: Record) -> str:
    return str(job.get("name") or job.get("key") or job["b"]["key"])


def _rounded(value: Any) -> Any:
    """Round numbers to what the measurement is worth, so that the file can be read."""
    if isinstance(value, float):
        return float(f"{value:.5g}")
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_rounded(item) for item in value]
    return value
