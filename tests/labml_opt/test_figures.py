import ast
import itertools
import json
import math
import os
import re
import runpy
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
import torch

from labml_opt import Adam, AdamFP16, AdamWarmupCosineDecay, figures
from labml_opt._figures import (
    belief,
    counter_example,
    curvature,
    decay,
    formats,
    gradients,
    measured,
    moments,
    number_lines,
    rectification,
    schedules,
    stamps,
    traffic,
)
from labml_opt._figures.svg import BIG, TEXT, Drawing, plain, power, scientific, width_of
from labml_opt._figures.words import FIELD, Words, WordsError, languages, read

ROOT = Path(__file__).parents[2]
STORED = ROOT / "docs" / "figures"
LANGUAGES = ("en", "ja")
NAMES = list(figures.FIGURES)
WITH_WORDS = [name for name in NAMES if not name.startswith("small_")]
SVG = "{http://www.w3.org/2000/svg}"


def stored(name, language):
    return (STORED / f"{name}.{language}.svg").read_text(encoding="utf-8")


def texts(svg):
    return ["".join(element.itertext()) for element in ElementTree.fromstring(svg).iter(f"{SVG}text")]


def boxes(svg):
    """Where each text of a figure stands, by an estimate of its width: (words, left, top, right, bottom)."""
    for element in ElementTree.fromstring(svg).iter(f"{SVG}text"):
        words = "".join(element.itertext())
        size = float(element.get("font-size", TEXT))
        width = width_of(words, size)
        left = (
            float(element.get("x")) - width * {"start": 0, "middle": 0.5, "end": 1}[element.get("text-anchor", "start")]
        )
        y = float(element.get("y"))
        yield words, left, y - 0.75 * size, left + width, y + 0.2 * size


# The stored figures


def test_every_stored_figure_is_what_the_package_draws_today():
    assert figures.stale() == {}, "run `python tasks.py figures`"


def test_there_is_no_stored_figure_that_nobody_draws():
    assert {path.name for path in STORED.glob("*.svg")} == {
        f"{name}.{language}.svg" for name in NAMES for language in LANGUAGES
    }


@pytest.mark.parametrize("name", NAMES)
def test_a_stamp_says_where_the_figure_comes_from(name):
    stamp = stamps.load(STORED)[name]
    if figures.FIGURES[name].data:
        told = json.loads((ROOT / figures.FIGURES[name].data).read_text(encoding="utf-8"))["provenance"]
        assert stamp.device == f"{told['machine']['cpu']}, 1 thread"
        assert (stamp.torch, stamp.command) == (told["torch"], told["command"])
    else:
        assert stamp.device == "CPU"
        assert stamp.command == f"python -m labml_opt.figures {name}"
    assert re.fullmatch(r"\d+\.\d+\.\d+\w*", stamp.torch)
    assert stamp.seed == figures.FIGURES[name].seed
    for language in LANGUAGES:
        (origin,) = ElementTree.fromstring(stored(name, language)).iter(f"{SVG}metadata")
        assert origin.text == stamp.line()


def test_only_the_gradients_are_random():
    assert [name for name, figure in figures.FIGURES.items() if figure.seed is not None] == ["adam_fp16_gradients"]


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("name", NAMES)
def test_a_figure_is_small_and_brings_no_style_of_its_own(name, language):
    svg = stored(name, language)
    assert len(svg.encode()) < 20_000
    elements = {element.tag.removeprefix(SVG) for element in ElementTree.fromstring(svg).iter()}
    assert elements <= {"svg", "title", "metadata", "g", "path", "circle", "text", "tspan"}


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("name", NAMES)
def test_every_colour_is_the_pages_with_a_fallback(name, language):
    svg = stored(name, language)
    assert re.findall(r"#[0-9a-f]+", re.sub(r"var\(--(ink|soft|tick|kept|lost),#[0-9a-f]{6}\)", "", svg)) == []
    for element in ElementTree.fromstring(svg).iter():
        if element.tag in (f"{SVG}path", f"{SVG}circle"):
            assert element.get("fill"), "a shape without a fill would take the one of the text"


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("name", WITH_WORDS)
def test_a_figure_tells_a_reader_who_cannot_see_what_it_shows(name, language):
    root = ElementTree.fromstring(stored(name, language))
    title = root.find(f"{SVG}title")
    assert root.get("role") == "img"
    assert root.get("aria-labelledby") == title.get("id")
    assert len(title.text) > 30


@pytest.mark.parametrize("name", [name for name in NAMES if name.startswith("small_")])
def test_an_ornament_is_silent(name):
    root = ElementTree.fromstring(stored(name, "en"))
    assert root.get("aria-hidden") == "true"
    assert root.get("viewBox") == "0 0 176 44"
    assert texts(stored(name, "en")) == []


def test_no_two_figures_share_an_id():
    ids = [identifier for name in NAMES for identifier in re.findall(r'\bid="([^"]+)"', stored(name, "en"))]
    assert len(ids) == len(set(ids)) == len(WITH_WORDS)


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("name", WITH_WORDS)
def test_no_text_leaves_the_figure(name, language):
    svg = stored(name, language)
    width, height = map(float, ElementTree.fromstring(svg).get("viewBox").split()[2:])
    outside = [box for box in boxes(svg) if box[1] < -0.5 or box[3] > width + 0.5 or box[2] < 0 or box[4] > height]
    assert outside == []


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("name", WITH_WORDS)
def test_no_text_lies_on_another(name, language):
    every = list(boxes(stored(name, language)))
    clashes = [
        (a[0], b[0])
        for i, a in enumerate(every)
        for b in every[:i]
        if a[1] < b[3] and b[1] < a[3] and a[2] < b[4] and b[2] < a[4]
    ]
    assert clashes == []


@pytest.mark.parametrize(
    "name",
    ["optimizer", "adam", "amsgrad", "noam", "adam_warmup_cosine_decay", "radam", "ada_belief", "sophia", "adam_fp16"],
)
@pytest.mark.parametrize("language", LANGUAGES)
def test_a_phone_shows_every_name_of_a_head_figure(name, language):
    """It shows the left 330 pixels. Beyond them may be numbers of the axis; a sentence may be cut at its end."""
    beyond = [words for words, left, _, _, _ in boxes(stored(name, language)) if left >= 250]
    assert [words for words in beyond if not re.fullmatch(r"[\d.,]+", words)] == []


# Drawing


@pytest.fixture(scope="module")
def drawn(tmp_path_factory):
    """All figures but those of AMSGrad, which take as long as all others together, drawn here."""
    folder = tmp_path_factory.mktemp("figures")
    names = [name for name in NAMES if "amsgrad" not in name]
    threads = torch.get_num_threads()
    torch.set_num_threads(3)
    before = torch.get_num_threads(), torch.get_rng_state()
    figures.write(names, folder)
    after = torch.get_num_threads(), torch.get_rng_state()
    torch.set_num_threads(threads)
    return folder, names, before, after


def test_another_process_draws_the_same_bytes(drawn, tmp_path):
    folder, names, _, _ = drawn
    program = (
        f"from pathlib import Path; from labml_opt import figures; figures.write({names!r}, Path({str(tmp_path)!r}))"
    )
    environment = {**os.environ, "PYTHONHASHSEED": "1", "PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, "-c", program], check=True, env=environment, cwd=ROOT, capture_output=True)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {
        path.name: path.read_bytes() for path in folder.iterdir()
    }


def test_the_languages_differ_in_words_only():
    def shapes(svg):
        return re.sub(r'<(title|text)[^>]*>.*</\1>| lang="(en|ja)"', "", svg)

    for name in NAMES:
        assert shapes(stored(name, "en")) == shapes(stored(name, "ja")), name


def test_drawing_a_page_draws_its_figures_and_no_others(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(figures, "folder", lambda: tmp_path)
    figures.draw("adam_warmup_cosine_decay")
    made = sorted(path.name for path in tmp_path.glob("*.svg"))
    assert made == sorted(
        f"adam_warmup_cosine_decay{part}.{language}.svg" for part in ("", "_total") for language in LANGUAGES
    )
    assert sorted(Path(line).name for line in capsys.readouterr().out.splitlines()) == made
    assert sorted(stamps.load(tmp_path)) == ["adam_warmup_cosine_decay", "adam_warmup_cosine_decay_total"]


def test_drawing_leaves_threads_and_random_numbers_as_they_were(drawn):
    _, _, before, after = drawn
    assert before[0] == after[0]
    assert torch.equal(before[1], after[1])


def test_an_unknown_figure_is_refused_with_the_names_of_the_known_ones(capsys):
    assert figures.main(["adagrad"]) == 2
    assert "there is no adagrad; the figures are hero, optimizer, adam" in capsys.readouterr().err


@pytest.mark.parametrize("reasons", [{}, {"hero": "adam.py has changed", "adam": "it was never drawn"}])
def test_check_names_what_is_stale_and_why_and_draws_nothing(reasons, monkeypatch, capsys):
    monkeypatch.setattr(figures, "stale", lambda: reasons)
    monkeypatch.setattr(figures, "write", lambda names: pytest.fail("it draws"))
    assert figures.main(["--check"]) == (1 if reasons else 0)
    assert capsys.readouterr().out.splitlines() == [f"{name}: {why}" for name, why in reasons.items()]


@pytest.mark.parametrize(
    ("arguments", "expected"), [([], ["adam"]), (["noam", "hero"], ["noam", "hero"]), (["--all"], NAMES)]
)
def test_without_names_what_is_stale_is_drawn_and_with_all_everything(arguments, expected, monkeypatch):
    drawn = []
    monkeypatch.setattr(figures, "stale", lambda: {"adam": "adam.py has changed"})
    monkeypatch.setattr(figures, "write", drawn.extend)
    assert figures.main(arguments) == 0
    assert drawn == expected


@pytest.mark.filterwarnings("ignore:.*found in sys.modules")
def test_the_module_can_be_run_and_ends_with_the_status_of_what_it_did(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["figures.py", "adagrad"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_module("labml_opt.figures", run_name="__main__")
    assert ended.value.code == 2
    assert "there is no adagrad" in capsys.readouterr().err


def test_bars_too_low_to_be_seen_leave_nothing_in_the_file():
    drawing = Drawing("x", 10, 10)
    before = list(drawing.parts)
    drawing.bars([(0, 0, 1, 0.01), (1, 0, 1, 0.0)], "ink")
    assert drawing.parts == before
    drawing.bars([(0, 0, 1, 0.01), (1, 0, 1, 2)], "ink")
    assert len(drawing.parts) == len(before) + 1


def test_a_missing_translation_is_named(tmp_path, monkeypatch, capsys):
    catalogue = tmp_path / "locale" / "ja" / "figures.po"
    catalogue.parent.mkdir(parents=True)
    catalogue.write_text('msgctxt "figures:adam_warmup"\nmsgid "learning rate"\nmsgstr ""\n', encoding="utf-8")
    monkeypatch.setattr(figures, "ROOT", tmp_path)
    monkeypatch.setattr(figures, "folder", lambda: tmp_path)
    monkeypatch.setattr(stamps, "modules", lambda name, root: {})
    assert figures.main(["adam_warmup"]) == 1
    assert "locale/ja/figures.po: no translation of 'The learning rate of each of" in capsys.readouterr().err


# Words


@pytest.fixture(scope="module")
def used(drawn):
    """The sentences that each figure asks for."""
    found = {}
    for name, figure in figures.FIGURES.items():
        words = Words(name)
        figure.draw(words)
        found[name] = words.used
    return found


def test_the_catalogue_holds_the_words_of_the_figures(used):
    """What else is in it are the words of the tables of measurements; tests/benchmarks holds them to it."""
    catalogue = languages(ROOT / "locale")["ja"]
    assert {name: sorted(sentences) for name, sentences in catalogue.items() if name in NAMES} == {
        name: sorted(sentences) for name, sentences in used.items() if sentences
    }


def test_every_sentence_is_translated_with_all_its_numbers():
    for name, sentences in languages(ROOT / "locale")["ja"].items():
        for english, japanese in sentences.items():
            assert japanese, (name, english)
            assert sorted(set(FIELD.findall(japanese))) == sorted(set(FIELD.findall(english))), (name, english)


def test_no_number_is_typed_into_a_sentence(used):
    """Numbers that name a format or are part of the problem are not measured: FP16, gradients of 1, a start at 0."""
    allowed = re.compile(r"BF16|FP16|FP32|\+1|−1|\b[01]\b|\b(8|16|23|32) (?=bits|of fraction|are R)")
    for name, sentences in used.items():
        for sentence in sentences:
            assert not re.search(r"\d", allowed.sub("", FIELD.sub("", sentence))), (name, sentence)


def test_a_catalogue_is_read_as_gettext_writes_it(tmp_path):
    path = tmp_path / "figures.po"
    path.write_text(
        'msgid ""\nmsgstr "Language: ja\\n"\n\n'
        "#: somewhere.py\n"
        'msgctxt "figures:adam"\nmsgid "a \\"b\\" "\n"{c}"\nmsgstr "一"\n"二\\n"\n\n'
        '#, fuzzy\nmsgctxt "figures:adam"\nmsgid "doubtful"\nmsgstr "疑わしい"\n',
        encoding="utf-8",
    )
    assert read(path) == {"adam": {'a "b" {c}': "一二\n"}}


def test_a_broken_catalogue_names_the_line(tmp_path):
    path = tmp_path / "figures.po"
    path.write_text('msgctxt "figures:adam"\nmsgid "step\nmsgstr "ステップ"\n', encoding="utf-8")
    with pytest.raises(WordsError, match=r"figures\.po:2: expected msgctxt, msgid or msgstr and a quoted text"):
        read(path)


def test_an_entry_of_another_catalogue_is_refused(tmp_path):
    path = tmp_path / "figures.po"
    path.write_text('msgctxt "adam#title"\nmsgid "Adam"\nmsgstr "Adam"\n', encoding="utf-8")
    with pytest.raises(WordsError, match=r'figures\.po:1: .*needs msgctxt "figures:<figure>"'):
        read(path)


# What was measured


@pytest.fixture
def speeds(tmp_path):
    """A file of results with speeds at two sizes, and much that is not to be drawn."""

    def pair(b, values, tensors, median, a=measured.REFERENCE, threads=1):
        job = {"kind": "pair", "a": {"key": a}, "b": b, "values": values, "tensors": tensors, "threads": threads}
        return {"job": job, "ratio": {"median": median, "q1": median / 2, "q3": median * 2}}

    fast, old = {"key": "ours-fast/float16"}, {"key": "ancestor/float16"}
    records = [
        pair(fast, 10**7, 4, 1.0),
        pair(fast, 10**5, 500, 8.0),
        pair(old, 10**7, 4, 0.25),
        pair(fast, 10**7, 4, 99.0, threads=2),
        pair({**fast, "unscale": True}, 10**7, 4, 99.0),
        pair(fast, 10**7, 4, 99.0, a="ancestor/float16"),
        {"job": pair(old, 10**5, 500, 0.0)["job"], "missing": "not installed"},
        {"job": {"kind": "memory"}, "at_rest": 12.0},
    ]
    path = tmp_path / "results.json"
    path.write_text(json.dumps({"results": records}), encoding="utf-8")
    return path


def test_only_speeds_with_one_thread_beside_torchs_fused_adam_are_drawn(speeds):
    data = measured.ratios(speeds)
    assert data.shapes == [(10**7, 4), (10**5, 500)]
    assert data.speeds == {
        ("ours-fast/float16", 10**7, 4): (1.0, 0.5, 2.0),
        ("ours-fast/float16", 10**5, 500): (8.0, 4.0, 16.0),
        ("ancestor/float16", 10**7, 4): (0.25, 0.125, 0.5),
    }


def test_the_title_of_the_speeds_says_what_was_measured_and_a_dash_for_what_was_not(speeds, monkeypatch):
    data = measured.ratios(speeds)
    monkeypatch.setattr(measured, "ratios", lambda: data)
    drawing = measured.fast_ratios(Words("fast_ratios"))
    assert "AdamFP16 with the fast path is at 1 to 8, its readable loop at – to –" in drawing.title
    svg = drawing.svg("en", "")
    dots = [circle for circle in ElementTree.fromstring(svg).iter(f"{SVG}circle") if circle.get("fill") != "none"]
    one, eight = (float(dot.get("cx")) for dot in dots[1:])
    assert one == float(re.search(r"M([\d.]+) \d+V", svg)[1]), "the speed of torch has a line"
    assert (eight - one) / (412 - 122) == pytest.approx(math.log(8) / math.log(20 / 0.05), abs=1e-3)


def test_without_measurements_the_way_to_get_them_is_said(tmp_path, monkeypatch, capsys):
    with pytest.raises(FileNotFoundError, match=r"results.json is not there: `python3 tasks.py bench` measures it"):
        measured.ratios(tmp_path / "results.json")
    monkeypatch.setattr(figures, "ROOT", tmp_path)
    figure = figures.FIGURES["fast_ratios"]
    monkeypatch.setattr(stamps, "modules", lambda name, root: {})
    assert figure.sources == {measured.FILE: ""}
    monkeypatch.setattr(measured, "FILE", "nowhere/results.json")
    assert figures.main(["fast_ratios"]) == 1
    assert "results.json is not there" in capsys.readouterr().err


def timed(b, values, tensors, speed, seconds, a=measured.REFERENCE):
    """A record of a pair: the speed of the second, and the seconds of the first."""
    job = {"kind": "pair", "a": {"key": a}, "b": {"key": b}, "values": values, "tensors": tensors, "threads": 1}
    return {"job": job, "ratio": {"median": speed}, "seconds": {"a": {"median": seconds}}}


def test_the_floor_is_carried_from_size_to_size_by_the_reference(tmp_path):
    """The reference has 0.8 of the floor's speed on large tensors, and takes ten times as long a value on small."""
    path = tmp_path / "results.json"
    records = [
        timed(measured.REFERENCE, 1000, 4, 0.8, 77.0, a=measured.STREAM),
        {"job": {"kind": "first_step"}},
        *(timed("ours/float16", 1000, 4, 0.5, seconds) for seconds in (2.0, 2.0, 50.0)),
        timed("ours/float16", 100, 500, 0.1, 2.0),
    ]
    path.write_text(json.dumps({"results": records[:2]}), encoding="utf-8")
    assert measured.floors(path) == {}, "without the reference nothing leads from size to size"
    path.write_text(json.dumps({"results": records}), encoding="utf-8")
    assert measured.floors(path) == pytest.approx(
        {
            (measured.REFERENCE, 1000, 4): 1 / 0.8,
            (measured.REFERENCE, 100, 500): 10 / 0.8,
            ("ours/float16", 1000, 4): 1 / 0.8 / 0.5,
            ("ours/float16", 100, 500): 10 / 0.8 / 0.1,
        }
    )


def test_a_contestant_that_was_measured_gets_a_row_and_another_none(monkeypatch):
    monkeypatch.setattr(measured, "floors", lambda: {("ours-split/bfloat16", 50_000_000, 4): 0.93})
    drawing = measured.fast_floor(Words("fast_floor"))
    assert "AdamFP16 with the fast path takes –, its readable loop –" in drawing.title
    names = [words for words in texts(drawing.svg("en", "")) if "AdamFP16" in words or "torch" in words]
    assert names == ["AdamFP16, fast, split"]


def test_the_time_of_the_loop_is_divided_as_it_was_put_together():
    """A step of three parts: calls, each of the same cost, one pass over the values, and what moves again."""
    a_call, again, calls = 40.0, 2.0, 12
    key = "ours/float16"
    times = {
        (key, v, t): (v + calls * t * a_call + (again * v if v > 10**6 else 0)) / v
        for v, t in ((10**5, 500), (10**6, 500), (10**7, 500), (10**5, 4), (5 * 10**7, 4))
    }
    times["ours-fast/float16", 10**5, 500] = 1.0
    found = traffic.shares(times, calls)
    assert [(share.values, share.tensors) for share in found] == [
        (10**5, 500),
        (10**6, 500),
        (10**7, 500),
        (5 * 10**7, 4),
    ]
    for share in found:
        whole = times[key, share.values, share.tensors] * share.values
        assert share.calls == pytest.approx(calls * share.tensors * a_call / whole)
        assert share.once == pytest.approx(share.values / whole)
        assert share.again * whole == pytest.approx(again * share.values if share.values > 10**6 else 0, abs=1e-3)


def test_without_measurements_there_is_nothing_to_divide(monkeypatch):
    monkeypatch.setattr(measured, "floors", dict)
    drawing = traffic.fast_calls(Words("fast_calls"))
    assert traffic.shares({}, 12) == []
    assert "In – tensors of – values, calls take –% of a step; in – of –, –%." in drawing.title


def test_what_cannot_be_read_has_no_origin(tmp_path):
    path = tmp_path / "results.json"
    assert measured.origin(path) == ("–", "–", "–")
    path.write_text("{}", encoding="utf-8")
    assert measured.origin(path) == ("–", "–", "–")


def test_new_measurements_make_their_figure_stale(tmp_path, monkeypatch):
    (tmp_path / "benchmarks").mkdir()
    monkeypatch.setattr(figures, "ROOT", tmp_path)
    monkeypatch.setattr(stamps, "modules", lambda name, root: {})
    seen = []
    for text in ("{}", "[]"):
        (tmp_path / measured.FILE).write_text(text, encoding="utf-8")
        seen.append(figures.FIGURES["fast_ratios"].sources)
    assert seen[0] != seen[1]
    assert figures.FIGURES["adam"].sources == {}


# What a step moves


@pytest.mark.parametrize(
    ("name", "optimizer", "dtype", "options"),
    [
        ("FP32", Adam, torch.float32, {}),
        ("FP16", AdamFP16, torch.float16, {}),
        ("BF16", AdamFP16, torch.bfloat16, {"split_master": True}),
    ],
)
def test_an_optimizer_keeps_the_bytes_that_are_drawn(name, optimizer, dtype, options):
    param = torch.nn.Parameter(torch.ones(100, dtype=dtype))
    try:
        stepped = optimizer([param], lr=1e-3, **options)
    except TypeError:
        pytest.skip(f"{optimizer.__name__} doesn't know {options}")
    param.grad = torch.ones_like(param)
    stepped.step()
    state = [value for value in stepped.state[param].values() if isinstance(value, torch.Tensor) and value.numel() > 1]
    ledger = traffic.LEDGERS[name]
    assert sum(value.nbytes for value in state) == 100 * traffic.kept(ledger)
    # What is kept is read and written, and so is the parameter; the gradient is read.
    used = 2 * sum(value.nbytes for value in state) + param.nbytes + param.grad.nbytes
    reads_param = 0 if name == "FP16" else param.nbytes
    assert used + reads_param == 100 * traffic.moved(ledger)


def test_28_bytes_are_moved_and_26_with_split_masters():
    assert [traffic.moved(ledger) for ledger in traffic.LEDGERS.values()] == [28, 28, 26]
    assert [traffic.kept(ledger) for ledger in traffic.LEDGERS.values()] == [8, 12, 10]


@pytest.mark.parametrize(
    ("call", "moved"),
    [
        (lambda a, b, h: a.add_(b), [("a.add_", 12)]),
        (lambda a, b, h: a + b, [("a.add", 12)]),
        (lambda a, b, h: a * a, [("a.mul", 8)]),
        (lambda a, b, h: a.addcmul_(b, b), [("a.addcmul_", 12)]),
        (lambda a, b, h: h.copy_(a), [(".copy_", 6)]),
        (lambda a, b, h: a.half(), [("a.to", 6)]),
        (lambda a, b, h: torch.equal(a, b), [("a.equal", 8)]),
        (lambda a, b, h: torch._foreach_mul_([a, b], 2.0), [("a._foreach_mul_", 16)]),
        (lambda a, b, h: a.view(8, 8)[0], []),
        (lambda a, b, h: torch.ones(()).add_(1), []),
    ],
)
def test_bytes_are_counted_as_by_hand(call, moved):
    a, b, h = torch.ones(traffic.VALUES), torch.ones(traffic.VALUES), torch.ones(traffic.VALUES).half()
    counting = traffic.Counting({a.data_ptr(): "a"})
    with counting:
        call(a, b, h)
    assert [(call.name, call.moved) for call in counting.calls] == moved


def test_the_loop_calls_torch_about_a_dozen_times_and_moves_several_times_the_floor():
    calls = traffic.loop()
    assert 8 <= len(calls) <= 14
    assert 2 < sum(call.moved for call in calls) / 28 < 5
    assert traffic.Call("*v*.mul_", 8) in calls, "the guide speaks of it"
    assert traffic.Call("*v*.addcmul_", 12) in calls
    written = [call.name for call in calls if call.name.endswith("_")]
    assert written[0] == "*m*.lerp_"
    assert written[-1] == "*θ*¹⁶.copy_"


# Stamps


@pytest.fixture
def package(tmp_path):
    """A package of two modules, of which `drawing` imports `rule`."""
    folder = tmp_path / "package"
    folder.mkdir()
    (folder / "__init__.py").write_text('"""All of it."""\n\nfrom package.rule import f\n')
    (folder / "rule.py").write_text('"""The rule."""\n\n\ndef f(x):\n    """Return x."""\n    return x\n')
    (folder / "drawing.py").write_text("import math\n\nfrom package import rule\n")
    (folder / "other.py").write_text("y = 1\n")
    return folder


def test_a_stamp_knows_the_modules_that_a_drawing_imports(package):
    assert list(stamps.modules("package.drawing", package.parent)) == ["package.drawing", "package.rule"]


def test_comments_and_docstrings_do_not_make_a_figure_stale(package):
    before = stamps.modules("package.drawing", package.parent)
    (package / "rule.py").write_text(
        '"""Other words."""\n\n\n# A comment.\ndef f(x):\n    """More\n    words."""\n    return (x)\n'
    )
    assert stamps.modules("package.drawing", package.parent) == before


def test_code_makes_a_figure_stale_and_the_module_is_named(package):
    before = stamps.modules("package.drawing", package.parent)
    (package / "rule.py").write_text('"""The rule."""\n\n\ndef f(x):\n    """Return x."""\n    return 2 * x\n')
    after = stamps.modules("package.drawing", package.parent)
    stamp = stamps.Stamp("CPU", "2.13.0", None, "", before, "words", {})
    assert stamps.why_stale(stamp, after, "words", []) == "what it comes from has changed: package.rule"


def test_an_empty_field_of_a_newer_syntax_tree_does_not_make_a_figure_stale():
    function = ast.parse("def f(): pass").body[0]
    written = stamps._written(function)
    function._fields = (*function._fields, "another")
    function.another = []
    assert stamps._written(function) == written


def test_words_and_files_make_a_figure_stale(tmp_path):
    path = tmp_path / "a.en.svg"
    path.write_text("<svg/>")
    stamp = stamps.Stamp("CPU", "2.13.0", None, "", {}, "words", {"a.en.svg": stamps.digest("<svg/>")})
    assert stamps.why_stale(stamp, {}, "words", [path]) == ""
    assert stamps.why_stale(None, {}, "words", [path]) == "it was never drawn"
    assert stamps.why_stale(stamp, {}, "other", [path]) == "its words were translated anew"
    path.write_text("<svg></svg>")
    assert stamps.why_stale(stamp, {}, "words", [path]) == "a.en.svg was changed by hand"
    path.unlink()
    assert stamps.why_stale(stamp, {}, "words", [path]) == "a.en.svg is missing"


def test_stamps_that_cannot_be_read_count_as_never_drawn(tmp_path):
    (tmp_path / stamps.FILE).write_text("<<<<<<< ours\n{}\n")
    assert stamps.load(tmp_path) == {}


# What the figures claim


def test_near_007_the_numbers_of_fp16_are_2_to_the_minus_14_apart():
    walk = number_lines.walk()
    assert walk.spacing == 2**-14
    assert walk.start == torch.tensor(0.07).half().item()
    gaps = [b - a for a, b in zip(walk.numbers, walk.numbers[1:], strict=False)]
    assert gaps == [2**-14] * len(gaps)


def test_a_step_without_a_master_never_happens():
    walk = number_lines.walk()
    assert walk.alone == [walk.start] * (number_lines.STEPS + 1)
    assert walk.spacing > 2 * number_lines.STEP


def test_five_steps_with_a_master_move_the_weight_by_two_numbers():
    walk = number_lines.walk()
    assert walk.places(walk.rounded) == [0, 0, 1, 1, 1, 2]
    assert walk.places(walk.master) == pytest.approx([k * 2e-5 / 2**-14 for k in range(6)], rel=1e-3)


def test_the_hero_moves_by_the_step_that_was_computed():
    root = ElementTree.fromstring(stored("hero", "en"))
    step, cell = re.fullmatch(r"--step:([\d.]+)px;--cell:(\d+)px", root.get("style")).groups()
    assert float(step) / float(cell) == pytest.approx(2e-5 / 2**-14, abs=1e-3)
    classes = [element.get("class") for element in root.iter() if element.get("class")]
    assert [classes.count(name) for name in ("try", "w32", "w16")] == [1, 1, 1]
    hops = [element for element in root.iter() if "hop" in (element.get("class") or "").split()]
    assert [hop.get("style") for hop in hops] == [f"--i:{i}" for i in range(5)]


def test_a_step_of_2e_5_is_lost_where_the_page_says():
    lost_from = formats.grid().lost_from
    assert lost_from[torch.float16] == 2**-4
    assert lost_from[torch.bfloat16] == 2**-7
    assert lost_from[torch.float32] == 2**9


@pytest.mark.parametrize(
    ("dtype", "exponent"), [(torch.float16, -10), (torch.bfloat16, -7), (torch.float32, -23)], ids=str
)
def test_the_spacing_at_1_is_the_formats(dtype, exponent):
    assert formats.spacing(1.0, dtype) == 2.0**exponent == torch.finfo(dtype).eps


def test_the_loss_scale_saves_most_of_the_gradients_that_fp16_loses():
    data = gradients.gradients()
    assert data.scale == 2**16
    assert 0.2 < data.share_lost < 0.7
    assert data.share_lost_scaled < 0.1 * data.share_lost
    assert data.overflowed == 0
    assert sum(count for exponent, count in data.lost.items() if exponent > -23) == 0


def test_decay_through_the_gradient_depends_on_its_size_and_decoupled_decay_does_not():
    data = decay.decays()
    large, small = decay.SIZES
    left = (1 - decay.LR * decay.DECAY) ** decay.STEPS
    assert data.decoupled[large][-1] == pytest.approx(left, abs=5e-3)
    assert data.decoupled[small][-1] == pytest.approx(left, abs=5e-3)
    assert data.coupled[large][-1] == pytest.approx(left ** (1 / large), abs=1e-2)
    assert data.coupled[small][-1] == pytest.approx(left ** (1 / small), abs=2e-2)


def test_a_raw_average_is_too_small_by_the_factor_of_the_page_and_a_corrected_step_is_one_rate():
    data = moments.start()
    beta1, beta2 = moments.BETAS
    assert data.m == pytest.approx([1 - beta1**t for t in data.steps], rel=1e-12)
    assert data.v == pytest.approx([1 - beta2**t for t in data.steps], rel=1e-9)
    assert data.step == pytest.approx([1] * len(data.steps), rel=1e-9)


def test_without_correction_a_step_would_be_up_to_six_and_a_half_rates_long():
    data = moments.start()
    assert max(data.uncorrected) == pytest.approx(6.57, abs=0.01)
    assert data.uncorrected[0] == pytest.approx(0.1 / math.sqrt(0.001))


def test_growing_gradients_reach_the_bound_and_a_single_one_316():
    data = moments.lengths()
    assert data.bound == pytest.approx(7.27, abs=0.005)
    assert data.bound_single == pytest.approx(3.162, abs=0.001)
    assert data.growth == pytest.approx(0.999 / 0.9)
    assert max(data.growing) == pytest.approx(data.bound, rel=1e-3)
    assert max(data.growing) <= data.bound
    assert data.single[0] == max(data.single) == pytest.approx(data.bound_single, rel=1e-3)


def test_adam_goes_to_plus_1_and_amsgrad_to_minus_1():
    paths = counter_example.paths()
    assert paths["Adam"].high[-1] == 1
    assert paths["Adam"].mean[-1] > 0.8
    assert paths["AMSGrad"].low[-1] == -1
    assert paths["AMSGrad"].mean[-1] < -0.8


def test_the_first_step_of_the_warm_up_uses_a_tenth_of_the_rate():
    values = schedules.warmup()
    assert values[0] == pytest.approx(schedules.LR / 10)
    assert values[8] < schedules.LR
    assert values[9:] == [schedules.LR] * (schedules.SHORT_END - 9)


def test_every_curve_of_the_schedule_is_drawn():
    assert [curve.total for curve in schedules.cosines(schedules.START, 50)] == [4e6, 2e6, 1e6]
    for name, strokes in (("adam_warmup_cosine_decay", 6), ("adam_warmup_cosine_decay_total", 3)):
        curves = re.findall(r'<path [^>]*stroke-linejoin="round"', stored(name, "en"))
        assert len(curves) == strokes, "three curves, and three strokes that name them where they lie on each other"


def test_the_floor_of_the_cosine_is_met_at_four_fifths_of_the_way_and_kept():
    for curve in schedules.cosines(schedules.COURSE, 10_000):
        assert curve.floor == pytest.approx(schedules.LR / 10)
        assert curve.floor_share == pytest.approx(math.acos(-0.8) / math.pi, abs=1e-5) == pytest.approx(0.795, abs=5e-4)
        assert {rate for step, rate in zip(curve.steps, curve.rates, strict=True) if step >= curve.floor_step} == {
            curve.floor
        }


def test_the_drawn_rates_are_the_ones_of_the_optimizer():
    optimizer = AdamWarmupCosineDecay([torch.nn.Parameter(torch.zeros(1))], lr=1e-4, warmup=5000, total_steps=2e6)
    _, curve, _ = schedules.cosines(schedules.START, 50)
    assert curve.rates == [optimizer.get_lr({"step": step}, optimizer.param_groups[0]) for step in curve.steps]


def test_the_rate_of_noam_is_highest_at_the_end_of_its_warm_up():
    curves = schedules.noams()
    assert [(curve.d_model, curve.warmup) for curve in curves] == [(512, 4000), (512, 8000), (2048, 2000)]
    assert [curve.top for curve in curves] == [4000, 8000, 2000]
    assert [max(curve.rates) for curve in curves] == pytest.approx([6.987712e-4, 4.941059e-4, 4.941059e-4], rel=1e-6)
    assert curves[0].rates[7999:] == curves[1].rates[7999:]


def test_the_share_of_radam_begins_at_step_6_and_grows_more_slowly_the_longer_the_memory():
    curves = [rectification.shares(beta2, rectification.LAST) for beta2 in rectification.BETAS]
    assert [curve.first for curve in curves] == [6, 6, 6]
    assert all(a < b for curve in curves for a, b in zip(curve.shares[5:500], curve.shares[6:501], strict=True))
    assert all(
        short > long
        for a, b in itertools.pairwise(curves)
        for short, long in zip(a.shares[5:], b.shares[5:], strict=True)
    )
    assert curves[2].shares[-1] < 0.5


def test_adabelief_steps_further_the_steadier_the_gradient_and_like_adam_where_it_swings():
    data = belief.lengths()
    assert data.adam[0] == pytest.approx(1, abs=0.01)
    assert data.belief[0] > 20
    assert all(a > b for a, b in zip(data.belief, data.belief[1:], strict=False))
    swinging = [(a, b) for swing, a, b in zip(data.swings, data.adam, data.belief, strict=True) if swing > 3]
    assert all(b == pytest.approx(a, rel=0.06) for a, b in swinging)


def test_sophia_steps_by_the_rate_up_to_the_bend_and_falls_like_one_over_the_curvature():
    for gradient in curvature.GRADIENTS:
        data = curvature.steps(gradient)
        assert data.bend == pytest.approx(gradient / 0.04)
        for h, length in zip(data.curvatures, data.lengths, strict=True):
            assert length == pytest.approx(min(1, data.bend / h), rel=1e-9)


def test_the_figures_are_computed_by_the_packages_own_classes():
    assert number_lines.Adam is decay.Adam is moments.Adam is Adam
    assert number_lines.AdamFP16 is gradients.AdamFP16 is AdamFP16
    assert schedules.AdamWarmupCosineDecay is AdamWarmupCosineDecay


# How numbers and text are written


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (power(2, -14), "2⁻¹⁴"),
        (scientific(2e-5), "2 × 10⁻⁵"),
        (scientific(1e-4), "10⁻⁴"),
        (scientific(6e6), "6 × 10⁶"),
        (plain(2e-5), "0.00002"),
        (plain(0.0625), "0.0625"),
        (plain(512.0), "512"),
    ],
)
def test_a_number_is_written_as_a_reader_expects(written, expected):
    assert written == expected


def test_a_wide_letter_is_a_square():
    assert width_of("半精度", TEXT) == 3 * TEXT
    assert width_of("*m*", BIG) == width_of("m", BIG)
