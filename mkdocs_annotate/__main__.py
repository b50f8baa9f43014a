"""The command line: ``python -m mkdocs_annotate translate``, ``check`` and ``notebooks``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from . import runs, translate
from .catalogue import CatalogueError
from .notebooks import NotebookError


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; return 0 if all is well."""
    parser = argparse.ArgumentParser(prog="python -m mkdocs_annotate", description=translate.__doc__)
    parser.add_argument("--config", type=Path, default=Path("mkdocs.yml"), help="the site's mkdocs.yml")
    commands = parser.add_subparsers(dest="command", required=True)
    update = commands.add_parser("translate", help="bring catalogues, anchors and digests in line with their sources")
    accept = "a translated page that has been revised after its English page changed"
    update.add_argument("--accept", type=Path, nargs="+", default=[], metavar="PAGE", help=accept)
    check = commands.add_parser("check", help="list everything that is wrong with the translations")
    check.add_argument("pages", nargs="*", metavar="PAGE", help="only these (adam, guides/resume, site)")
    run = commands.add_parser("notebooks", help="run the notebooks whose outputs are stale, and stamp them")
    run.add_argument("notebooks", nargs="*", metavar="NAME", help="only these, stale or not")
    run.add_argument("--all", action="store_true", help="all of them, stale or not")
    run.add_argument("--source", default="", metavar="ADDRESS", help="where the install cells find the package")
    options = parser.parse_args(arguments)
    try:
        project = translate.Project.load(options.config)
        if options.command == "translate":
            report, problems = translate.translate(project, options.accept)
            print(*report, sep="\n")
        elif options.command == "notebooks":
            report = runs.refresh(project, options.notebooks, everything=options.all, source=options.source)
            print(*report, sep="\n")
            return 0
        else:
            problems = translate.check(project, options.pages)
    except (translate.ProjectError, NotebookError, CatalogueError) as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("stopped; what was stored before is as it was", file=sys.stderr)
        return 130
    for problem in problems:
        print(problem, file=sys.stderr)
    if options.command == "check":
        print(
            f"{len(problems)} problem{'s' * (len(problems) > 1)}"
            if problems
            else "all texts are translated, and nothing is wrong with them"
        )
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
