"""Measure, and write `benchmarks/results.json`.

    python3 tasks.py bench             everything, about ten minutes
    python3 tasks.py bench --bars      only what has to be reached, and the whole iteration
    python3 tasks.py bench --quick     all of it on few values and uncompiled, to see that it runs
    python3 tasks.py bench --tables    measure nothing, write the site's tables from the stored file

Close other programs before: the ratios are of neighbouring runs and stand a restless machine, but not everything.
Ctrl-C stops and keeps what was measured.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks import plan, provenance, results
from benchmarks.contestants import CONTESTANTS, STREAM, why_missing
from benchmarks.worker import MARK

ROOT = results.ROOT
Record = dict[str, Any]


def short(job: Record) -> str:
    """Describe a job in a line."""
    if job["kind"] == "agreement":
        return f"fast against readable: {job['name']}"
    shape = f"{job['values']:.0e} in {job['tensors']}, {job['threads']} thread{'s'[: job['threads'] - 1]}"
    if job["kind"] == "pair":
        return f"{shape}: {side(job['b'])} against {side(job['a'])}"
    what = f"first step, {job['cache']} cache" if job["kind"] == "first_step" else "bytes"
    return f"{shape}: {what}: {name_of(job['key'])}{' with unscale_' if job.get('unscale') else ''}"


def name_of(key: str) -> str:
    """Return a contestant's name with the dtype."""
    return "a.add_(b)" if key == STREAM else f"{CONTESTANTS[key].name} {key.partition('/')[2]}"


def side(side: Record) -> str:
    """Describe a side of a pair."""
    passes = "" if "unscale" not in side else " + unscale_, clip, step" if side["unscale"] else " + scaler's step"
    return name_of(side["key"]) + passes


def outcome(record: Record) -> str:
    """Describe what came of a job, in a few words."""
    if reason := record.get("missing") or record.get("failed"):
        return f"-- {reason}"
    if "ratio" in record:
        ratio = record["ratio"]
        return f"{ratio['median']:.2f} ({ratio['q1']:.2f} to {ratio['q3']:.2f}, {record['pairs']} pairs)"
    return ", ".join(f"{key} {value:.3g}" for key, value in record.items() if isinstance(value, float))


class Workers:
    """One process that measures, started anew for another number of threads or after a crash."""

    def __init__(self, environment: dict[str, str]) -> None:
        self.environment = environment
        self.process: subprocess.Popen[str] | None = None
        self.threads = 0
        self.caches: dict[int, str] = {}
        self.folder = tempfile.TemporaryDirectory(prefix="bench-", ignore_cleanup_errors=True)

    def measure(self, job: Record) -> Record:
        """Have a job carried out."""
        if job["kind"] == "first_step":
            return self.first_step(job)
        if self.process is None or self.threads != job["threads"]:
            self.start(job["threads"])
        assert self.process is not None
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        try:
            self.process.stdin.write(json.dumps(job) + "\n")
            self.process.stdin.flush()
            for line in self.process.stdout:
                if line.startswith(MARK):
                    answer: Record = json.loads(line.removeprefix(MARK))
                    return answer
        except BrokenPipeError:
            pass
        status = self.process.wait()
        self.process = None
        return {"failed": f"the process that measured ended with status {status}"}

    def start(self, threads: int) -> None:
        """Start a process that measures with so many threads."""
        self.stop()
        self.threads = threads
        environment = {**os.environ, **self.environment, "OMP_NUM_THREADS": str(threads)}
        command = [sys.executable, "-m", "benchmarks.worker", str(threads)]
        self.process = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def stop(self) -> None:
        """End the process, if there is one."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def first_step(self, job: Record) -> Record:
        """Time the first step of a new process, with an empty cache or the one that the cold run left."""
        if reason := why_missing(job["key"]):
            return {"missing": reason}
        self.stop()
        tensors = job["tensors"]
        if job["cache"] == "cold" or tensors not in self.caches:
            self.caches[tensors] = tempfile.mkdtemp(dir=self.folder.name)
            if job["cache"] == "warm":
                self.first_step({**job, "cache": "cold"})
        environment = {**os.environ, **self.environment, "OMP_NUM_THREADS": "1"}
        environment["TORCHINDUCTOR_CACHE_DIR"] = self.caches[tensors]
        command = [sys.executable, "-m", "benchmarks.compiling", job["key"], str(job["values"]), str(tensors)]
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            return {"failed": (done.stderr.strip().splitlines() or ["no message"])[-1][:200]}
        answer: Record = json.loads(done.stdout.splitlines()[-1])
        return answer


def measure(scope: plan.Scope, minutes: float, out: Path, command: str, only: str = "") -> Record:
    """Carry out the plan until `minutes` are over; `only` is a regular expression for the jobs that are wanted."""
    origin = provenance.begin(command)
    todo = [job for job in plan.jobs(scope) if re.search(only, short(job))]
    said = {why_missing(key) for key in CONTESTANTS}
    for reason in sorted(said - {""}):
        print(f"-- {reason}")
    begun = time.monotonic()
    records: list[Record] = []
    complete = False
    workers = Workers({"TORCH_COMPILE_DISABLE": "1"} if scope.quick else {})
    try:
        for number, job in enumerate(todo, 1):
            late = time.monotonic() - begun > 60 * minutes
            record = {"missing": f"out of time after {minutes:g} minutes"} if late else workers.measure(job)
            records.append({"job": job, **record})
            missing = str(record.get("missing", ""))
            if not missing or missing not in said:
                said.add(missing)
                seconds = time.monotonic() - begun
                print(f"[{number}/{len(todo)}, {seconds:.0f} s] {short(job)}: {outcome(record)}", flush=True)
        complete = not only
    except KeyboardInterrupt:
        print(f"\nstopped: {len(records)} of {len(todo)} were measured")
    finally:
        workers.stop()
        workers.folder.cleanup()
    origin["minutes"] = round((time.monotonic() - begun) / 60, 1)
    return results.write(out, origin, records, scope, complete)


def report(whole: Record) -> None:
    """Print each bar."""
    print("\nThe bars: the median ratio of alternating pairs, and its quartiles")
    for row in whole["bars"]:
        bar = "      -" if row["bar"] is None else f"{'>=' if row['more_is_better'] else '<='} {row['bar']:<7.3g}"
        aim = "" if row["aim"] is None else f"aim {row['aim']:g}"
        if row["measured"] is None:
            print(f"  ....  {row['name']:<28} {bar} {aim:<10} {row['why']}")
            continue
        word = {True: "pass", False: "FAIL", None: "    "}[row["passed"]]
        spread = ""
        if "quartiles" in row:
            low, high = row["quartiles"]
            spread = f" ({low:.3f} to {high:.3f}, {row['pairs']} pairs)"
        print(f"  {word}  {row['name']:<28} {bar} {aim:<10} {row['measured']:.3g}{spread}")
    for row in whole["bandwidth"]:
        print(f"  a.add_(b) with {row['threads']} thread(s): {row['bytes_per_second'] / 1e9:.1f} GB/s")
    for line in whole["failed"]:
        print(f"  failed: {line}")


def main(arguments: list[str]) -> int:
    """Do what the command line asks for."""
    parser = argparse.ArgumentParser(
        prog="tasks.py bench", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--bars", action="store_true", help="measure only what has to be reached")
    parser.add_argument("--quick", action="store_true", help="few values, nothing compiled; the figures mean nothing")
    parser.add_argument("--minutes", type=float, default=11.0, help="when to stop measuring (default: 11)")
    parser.add_argument("--only", default="", metavar="PATTERN", help="only the lines that match, as they are printed")
    parser.add_argument("--out", type=Path, help="the file to write (default: benchmarks/results.json)")
    parser.add_argument("--tables", action="store_true", help="only write the site's tables, from the stored file")
    options = parser.parse_args(arguments)
    if options.tables:
        from benchmarks import tables

        tables.write(results.load(options.out or results.FILE))
        return 0
    scope = plan.Scope.small() if options.quick else plan.Scope(threads=_threads(), bars_only=options.bars)
    # What is measured in a hurry, or in part, must not take the place of what the site shows.
    partly = options.quick or options.bars or options.only
    name = "quick" if options.quick else "part"
    out = options.out or (ROOT / "runs" / f"bench-{name}.json" if partly else results.FILE)
    whole = measure(scope, options.minutes, out, " ".join(["python3 tasks.py bench", *arguments]), options.only)
    report(whole)
    print(f"\n{out.resolve()}")
    return 0 if whole["complete"] or options.only else 130


def _threads() -> tuple[int, ...]:
    return tuple(threads for threads in plan.THREADS if threads <= (os.cpu_count() or 1))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
