"""The tables of the site, made from the stored file, so that nobody types a number.

    python3 tasks.py bench --tables

writes `docs/tables/<name>.<language>.txt`, which the page *How fast it is* takes in as they are. Ratios are shown, not
times: a time says something about one machine only. The words are in `locale/<language>/figures.po`, beside those of
figures.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.bars import BARS
from benchmarks.contestants import BF16, CONTESTANTS, FLOOR_BYTES, FP16, FP32, REFERENCE, STREAM
from labml_opt._figures.svg import scientific
from labml_opt._figures.words import Words, languages

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "docs" / "tables"
Record = dict[str, Any]
NOTHING = "–"
BREAK = "<br>"
DTYPE_NAMES = {FP32: "FP32", FP16: "FP16", BF16: "BF16"}
SHAPES = ((10_000_000, 4), (1_000_000, 500))


def number(value: float) -> str:
    """Write a ratio with as many digits as can be believed."""
    return f"{value:.2f}" if value < 10 else f"{value:.0f}"


def spread(ratio: Record) -> str:
    """Write a median and its quartiles."""
    return f"**{number(ratio['median'])}** ({number(ratio['q1'])}–{number(ratio['q3'])})"


def _name(key: str, words: Words) -> str:
    if key == STREAM:
        return words("the floor: {bytes} bytes a value at the speed of `a.add_(b)`", bytes=FLOOR_BYTES)
    return f"`{CONTESTANTS[key].name}` {DTYPE_NAMES[key.partition('/')[2]]}"


def _table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _groups(head: list[str], groups: dict[str, list[list[str]]]) -> str:
    """Return a table for each group below its name, so that a phone need not show the name in every row."""
    return "\n".join(f"**{name}**\n\n{_table(head, rows)}" for name, rows in groups.items())


def _narrow(key: str, words: Words, rest: str) -> str:
    """Write a contestant, in two lines if it is long, and what it was measured on below it."""
    who = f"`{CONTESTANTS[key].name}`".replace(", ", ",`" + BREAK + "`", 1)
    return f"{who}{BREAK}{words('{dtype}, {rest}', dtype=DTYPE_NAMES[key.partition('/')[2]], rest=rest)}"


def _verdict(row: Record, words: Words) -> str:
    verdicts = {True: words("reached"), False: words("not reached"), None: NOTHING}
    unmeasured = words("not measured")
    return unmeasured if row["measured"] is None else verdicts[row["passed"]]


def _wanted(bar: str, aim: str, row: Record, words: Words) -> str:
    """Write what was to be reached, and whether it was."""
    both, verdict = words("{bar} ({aim})", bar=bar, aim=aim), _verdict(row, words)
    return both if row["bar"] is None else f"{bar if aim == NOTHING else both}{BREAK}{verdict}"


def _shape(values: int, tensors: int, threads: int, words: Words) -> str:
    count = scientific(values)
    alone = words("{values} in {tensors}", values=count, tensors=tensors)
    several = words("{threads} threads", threads=threads)
    return alone if threads == 1 else f"{alone}{BREAK}{several}"


def bars(whole: Record, words: Words) -> str:
    """Return the rows that time something, by whom they are timed against: who, on what, the figure and the bar."""
    head = [words("timed"), words("measured"), words("bar (aim)")]
    groups: dict[str, list[list[str]]] = {}
    for row in whole["bars"]:
        if "a" not in row:
            continue
        measured = NOTHING
        if row["measured"] is not None:
            low, high = row["quartiles"]
            measured = spread({"median": row["measured"], "q1": low, "q3": high}).replace(" ", BREAK)
        shape = _shape(row["values"], row["tensors"], row["threads"], words)
        groups.setdefault(words("Beside {who}", who=_name(row["a"]["key"], words)), []).append(
            [
                _narrow(row["b"]["key"], words, shape),
                measured,
                _wanted(f"{row['bar']:g}", f"{row['aim']:g}", row, words),
            ]
        )
    return _groups(head, groups)


def others(whole: Record, words: Words) -> str:
    """Return the rows that are no speed: bytes, differences and the first step, where less is better."""
    head = [words("case"), words("measured"), words("bar (aim)")]
    names = {
        "agreement": words("Difference between the two paths, any optimizer"),
        "first_step": words("First step, compiling included; the bar is 1"),
        "memory": words("Bytes a value beyond parameter and gradient"),
    }
    kinds = {bar.name: bar.kind for bar in BARS}
    groups: dict[str, list[list[str]]] = {}
    for row in whole["bars"]:
        kind = kinds[row["name"]]
        if kind == "pair":
            continue
        what, bar, aim, result = _OTHER[kind](row, words)
        shown = NOTHING if row["measured"] is None else result
        groups.setdefault(names[kind], []).append([what, shown, _wanted(bar, aim, row, words)])
    return _groups(head, groups)


def _agreement(row: Record, words: Words) -> tuple[str, str, str, str]:
    measured = row["measured"] or 0.0
    if row["name"] == "agreement-params":
        return words("16-bit parameters that differ"), NOTHING, f"{row['aim']:g}", f"{measured:g}"
    what = words("largest relative difference in FP32 state")
    return what, scientific(row["bar"]), "0", scientific(measured, 2) if measured else "0"


def _first_step(row: Record, words: Words) -> tuple[str, str, str, str]:
    cold = row["cache"] == "cold"
    what = words("cold cache, {tensors} tensors" if cold else "warm cache, {tensors} tensors", tensors=row["tensors"])
    bar, aim = (words("{seconds} s", seconds=f"{row[key]:g}") for key in ("bar", "aim"))
    return what, bar, aim, number((row["measured"] or 0.0) / row["bar"])


def _memory(row: Record, words: Words) -> tuple[str, str, str, str]:
    after = "after_unscale" in row["name"]
    sentence = (
        "{tensors} tensors, between `unscale_` and the step"
        if after
        else "{tensors} tensors, with `unscale_`"
        if "unscale" in row["name"]
        else "{tensors} tensors, with `unscale_in_step`"
    )
    what = _narrow(row["key"], words, words(sentence, tensors=row["tensors"]))
    return what, f"{row['bar']:g}", NOTHING, f"{row['measured'] or 0.0:.1f}"


_OTHER: dict[str, Callable[[Record, Words], tuple[str, str, str, str]]] = {
    "agreement": _agreement,
    "first_step": _first_step,
    "memory": _memory,
}


def contestants(whole: Record, words: Words) -> str:
    """Return everybody's speed at two sizes, one thread, in each dtype; torch's fused Adam in FP32 is 1."""
    cells = {
        (job["b"]["key"], job["values"], job["tensors"]): record
        for record in whole["results"]
        for job in [record["job"]]
        if job["kind"] == "pair" and job["a"] == {"key": REFERENCE} and set(job["b"]) == {"key"} and job["threads"] == 1
    }
    dtypes = tuple(DTYPE_NAMES)
    names: dict[str, dict[str, str]] = {}
    for key, contestant in CONTESTANTS.items():
        who, _, dtype = key.partition("/")
        # Ours has a name for plain parameters and one for those with masters, and only one of them fits a column.
        names.setdefault(f"`{contestant.name}`", {})[dtype] = f"{who}/{dtype}"
    head = [words("optimizer")]
    for values, tensors in SHAPES:
        head += [f"{scientific(values)} / {tensors}, {DTYPE_NAMES[dtype]}" for dtype in dtypes]
    rows = []
    for name, keys in names.items():
        row = [name]
        for values, tensors in SHAPES:
            for dtype in dtypes:
                key = keys.get(dtype, "")
                record = cells.get((key, values, tensors), {})
                measured = number(record["ratio"]["median"]) if "ratio" in record else NOTHING
                row.append("1" if key == REFERENCE else measured)
        rows.append(row)
    return _table(head, rows)


def iteration(whole: Record, words: Words) -> str:
    """Return the whole iteration against torch's, and how many bare steps it takes."""
    found: dict[tuple[str, bool, int, bool], Record] = {}
    for record in whole["results"]:
        job = record["job"]
        if job["kind"] != "pair" or "unscale" not in job["b"] or "ratio" not in record:
            continue
        key, unscale = job["b"]["key"], job["b"]["unscale"]
        if job["a"] == {"key": key}:
            found[key, unscale, job["tensors"], False] = record["ratio"]
        elif job["a"]["key"] == REFERENCE and key != REFERENCE:
            found[key, unscale, job["tensors"], True] = record["ratio"]
    head = [words(title) for title in ("timed", "speed", "in bare steps")]
    groups: dict[str, list[list[str]]] = {}
    for values, tensors in SHAPES:
        for unscale in (True, False):
            passes = "scale, unscale, clip, step, update" if unscale else "scale, step with `unscale_in_step`, update"
            shape = _shape(values, tensors, 1, words)
            rows = groups.setdefault(words("{values}: {passes}", values=shape, passes=words(passes)), [])
            for key in (f"ours-fast/{FP16}", f"ours/{FP16}", REFERENCE):
                against, bare = (found.get((key, unscale, tensors, which)) for which in (True, False))
                speed = "1" if key == REFERENCE else NOTHING if against is None else spread(against)
                rows.append(
                    [
                        _name(key, words).replace("` ", "`" + BREAK),
                        speed.replace(" ", BREAK),
                        NOTHING if bare is None else number(1 / bare["median"]),
                    ]
                )
    return _groups(head, groups)


def origin(whole: Record, words: Words) -> str:
    """Return where the figures come from, in a sentence."""
    told = whole["provenance"]
    machine = told["machine"]
    bandwidth = {row["threads"]: row["bytes_per_second"] for row in whole["bandwidth"]}
    more = NOTHING if 1 not in bandwidth or 2 not in bandwidth else number(bandwidth[2] / bandwidth[1])
    loads = [NOTHING if load is None else f"{load[0]:g}" for load in (told["load_at_start"], told["load_at_end"])]
    return (
        words(
            "{cpu}, {cores} cores, {memory} GiB of memory; load average {start} before and {end} after; torch {torch}, "
            "Python {python}, {date}, `{command}`, digest of the sources {digest}. Two threads stream {more} times as "
            "fast as one.",
            cpu=machine["cpu"],
            cores=machine["cores"],
            memory=machine["memory_gib"] or NOTHING,
            start=loads[0],
            end=loads[1],
            torch=told["torch"],
            python=told["python"],
            date=told["date"],
            command=told["command"],
            digest=told["digest"],
            more=more,
        )
        + "\n"
    )


TABLES: dict[str, Callable[[Record, Words], str]] = {
    f"fast_{table.__name__}": table for table in (bars, others, contestants, iteration, origin)
}


def render(whole: Record, root: Path = ROOT) -> dict[str, str]:
    """Return every table in every language, by the name of its file."""
    translations = languages(root / "locale")
    made = {}
    for name, table in TABLES.items():
        for language in ("en", *translations):
            words = Words(name, language, None if language == "en" else translations[language].get(name, {}))
            made[f"{name}.{language}.txt"] = table(whole, words)
    return made


def sentences(whole: Record) -> dict[str, list[str]]:
    """Return the English words of each table, which a catalogue has to translate."""
    found = {}
    for name, table in TABLES.items():
        words = Words(name)
        table(whole, words)
        found[name] = words.used
    return found


def write(whole: Record, folder: Path = FOLDER) -> None:
    """Write every table in every language."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in render(whole).items():
        (folder / name).write_text(text, encoding="utf-8", newline="\n")
        print(folder / name)
