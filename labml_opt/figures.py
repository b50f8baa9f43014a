"""
Draw the figures of the documentation.

    python -m labml_opt.figures              draw what is stale
    python -m labml_opt.figures adam amsgrad draw these, stale or not
    python -m labml_opt.figures --all        draw everything
    python -m labml_opt.figures --check      draw nothing, say what is stale

Each figure is computed by the package itself and written as `docs/figures/<name>.<language>.svg`, one file a language.
Beside them `stamps.json` says of each one on what device and with which torch and seed it was made, by which command
and from which modules; of what was measured it says where and how that was. A figure is stale when one of those modules
computes something else than it did, when other figures were measured, when a word of it was translated anew, or when
its file was changed by hand. Comments and docstrings don't count.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from labml_opt._figures import (
    belief,
    counter_example,
    curvature,
    decay,
    formats,
    gradients,
    halves,
    measured,
    moments,
    number_lines,
    rectification,
    schedules,
    stamps,
    traffic,
)
from labml_opt._figures.svg import Drawing
from labml_opt._figures.words import Words, WordsError, languages

ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Figure:
    """
    A figure: the page it stands on, the function that draws it, and the seed of its random numbers if it has any.

    What was measured isn't computed again when it is drawn: `data` is the file that such a figure is drawn from.
    """

    page: str
    draw: Callable[[Words], Drawing]
    seed: int | None = None
    data: str = ""

    @property
    def name(self) -> str:
        """Return the name of its files, which is the name of its function."""
        return self.draw.__name__

    @property
    def sources(self) -> dict[str, str]:
        """Return a digest of each module that the figure is made from, and of its data."""
        found = stamps.modules(self.draw.__module__, ROOT)
        if self.data:
            path = ROOT / self.data
            found[self.data] = stamps.digest(path.read_text(encoding="utf-8")) if path.is_file() else ""
        return found


FIGURES = {
    figure.name: figure
    for figure in (
        Figure("index", number_lines.hero),
        Figure("optimizer", decay.optimizer),
        Figure("adam", moments.adam),
        Figure("adam", moments.adam_step),
        Figure("amsgrad", counter_example.amsgrad),
        Figure("adam_warmup", schedules.adam_warmup),
        Figure("noam", schedules.noam),
        Figure("adam_warmup_cosine_decay", schedules.adam_warmup_cosine_decay),
        Figure("adam_warmup_cosine_decay", schedules.adam_warmup_cosine_decay_total),
        Figure("radam", rectification.radam),
        Figure("ada_belief", belief.ada_belief),
        Figure("sophia", curvature.sophia),
        Figure("adam_fp16", number_lines.adam_fp16),
        Figure("adam_fp16", formats.adam_fp16_grid),
        Figure("adam_fp16", gradients.adam_fp16_gradients, gradients.SEED),
        Figure("split_master", halves.split_master),
        Figure("guides/fast", traffic.fast_bytes),
        Figure("guides/fast", traffic.fast_passes),
        Figure("guides/fast", traffic.fast_calls, data=measured.FILE),
        Figure("guides/fast", measured.fast_floor, data=measured.FILE),
        Figure("guides/measured", measured.fast_ratios, data=measured.FILE),
        Figure("index", decay.small_optimizer),
        Figure("index", moments.small_adam),
        Figure("index", counter_example.small_amsgrad),
        Figure("index", schedules.small_adam_warmup),
        Figure("index", schedules.small_noam),
        Figure("index", schedules.small_adam_warmup_cosine_decay),
        Figure("index", rectification.small_radam),
        Figure("index", belief.small_ada_belief),
        Figure("index", curvature.small_sophia),
        Figure("index", number_lines.small_adam_fp16),
    )
}


def draw(page: str) -> None:
    """Draw the figures of one page anew and say where they are; running the page's module does this."""
    write([figure.name for figure in FIGURES.values() if figure.page == page])


def folder() -> Path:
    """Return where figures belong: `docs/figures` of the checkout, or here if the package is installed without one."""
    docs = ROOT / "docs"
    return docs / "figures" if docs.is_dir() else Path.cwd()


def write(names: list[str], into: Path | None = None) -> None:
    """Draw figures in every language, write them with their stamps and print the paths."""
    into = into or folder()
    into.mkdir(parents=True, exist_ok=True)
    translations = languages(ROOT / "locale")
    threads = torch.get_num_threads()
    # The order in which numbers are added changes their last bit, and with several threads it isn't always the same.
    torch.set_num_threads(1)
    try:
        for name in names:
            stamp = make(name, translations, into)
            stamps.store(into, name, stamp)
    finally:
        torch.set_num_threads(threads)


def make(name: str, translations: dict[str, dict[str, dict[str, str]]], into: Path) -> stamps.Stamp:
    """Draw one figure in English and in each language that has a catalogue; return its stamp."""
    figure = FIGURES[name]
    device, version, command = "CPU", torch.__version__.split("+")[0], f"python -m labml_opt.figures {name}"
    if figure.data:
        device, version, command = measured.origin(ROOT / figure.data)
    stamp = stamps.Stamp(
        device=device,
        torch=version,
        seed=figure.seed,
        command=command,
        modules=figure.sources,
        words=stamps.words_digest(name, translations),
        files={},
    )
    for language in ("en", *translations):
        words = Words(name, language, None if language == "en" else translations[language].get(name, {}))
        svg = figure.draw(words).svg(language, stamp.line())
        path = into / f"{name}.{language}.svg"
        path.write_text(svg, encoding="utf-8", newline="\n")
        stamp.files[path.name] = stamps.digest(svg)
        print(path)
    return stamp


def stale(into: Path | None = None) -> dict[str, str]:
    """Return the figures that no longer are what the package would draw, each with the reason in words."""
    into = into or folder()
    translations = languages(ROOT / "locale")
    stored = stamps.load(into)
    found = {}
    for name, figure in FIGURES.items():
        reason = stamps.why_stale(
            stored.get(name),
            modules=figure.sources,
            words=stamps.words_digest(name, translations),
            files=[into / f"{name}.{language}.svg" for language in ("en", *translations)],
        )
        if reason:
            found[name] = reason
    return found


def main(arguments: list[str]) -> int:
    """Draw what the command line asks for."""
    options = {argument for argument in arguments if argument.startswith("-")}
    names = [argument for argument in arguments if not argument.startswith("-")]
    if unknown := (options - {"--all", "--check"}) | (set(names) - FIGURES.keys()):
        print(f"there is no {', '.join(sorted(unknown))}; the figures are {', '.join(FIGURES)}", file=sys.stderr)
        return 2
    try:
        reasons = stale()
        if "--check" in options:
            for name, reason in reasons.items():
                print(f"{name}: {reason}")
            return 1 if reasons else 0
        write(names or list(FIGURES if "--all" in options else reasons))
    except (WordsError, FileNotFoundError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
