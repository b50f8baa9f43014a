"""Where the engine and mkdocs-jupyter meet: which notebooks are pages, what it is told, what readers download.

The notebooks lie beside `docs`, not in it. In each language MkDocs is handed a copy in the cache whose text is left
out, so that mkdocs-jupyter makes HTML of code and outputs, and of nothing else.
"""

from __future__ import annotations

import glob
import json
import posixpath
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import ConfigurationError, PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from . import cells, notebooks
from .errors import seen
from .heads import Language
from .languages import Build, Links, Options, Shared
from .site import Site

ONLY = ["*.ipynb"]


def settle(config: MkDocsConfig, options: Options, build: Build, language: Language) -> dict[str, Path]:
    """Tell mkdocs-jupyter to take notebooks only and to pass no error; return the notebooks by page."""
    found = notebooks.find(build.root / options.notebooks) if options.notebooks else {}
    jupyter = config.plugins.get("mkdocs-jupyter")
    if found and jupyter is None:
        raise ConfigurationError(
            f"`notebooks: {options.notebooks}` needs mkdocs-jupyter: install it, and add "
            f"`- mkdocs-jupyter: {{include: {json.dumps(ONLY)}}}` to the plugins."
        )
    if jupyter is not None:
        if jupyter.config["include"] != ONLY:
            build.say(
                f"mkdocs-jupyter would take {', '.join(jupyter.config['include'])}, but other pages than notebooks are "
                f"not for it: it gets all notebooks and nothing else. Write `include: {json.dumps(ONLY)}` below it."
            )
        folder = build.root / ".cache" / "mkdocs-jupyter" / language.code
        # What is stored is shown; a run while the site is built would have another origin than its stamp says.
        stored = [glob.escape(str(_cache(build, language) / _uri(options, name))) for name in found]
        ignored = [*jupyter.config["execute_ignore"], *stored]
        jupyter.config.update(include=ONLY, allow_errors=False, cache_dir=str(folder), execute_ignore=ignored)
    return {_uri(options, name): path for name, path in found.items()}


def _uri(options: Options, name: str) -> str:
    return f"{options.notebooks}/{name}.ipynb"


def _cache(build: Build, language: Language) -> Path:
    return (build.root / ".cache" / "notebooks" / language.code).resolve()


def add_files(
    files: Files, pages: Mapping[str, Path], config: MkDocsConfig, build: Build, language: Language, options: Options
) -> None:
    """Add a page for each notebook, and what readers download; further languages link to that of the default one."""
    try:
        for file in files:
            if file.src_uri.endswith(".ipynb") and file.abs_src_path and not file.inclusion.is_excluded():
                path = Path(seen(file.abs_src_path))
                notebooks.refuse_failures(path, notebooks.read(path))
        _add_files(files, pages, config, build, language, options)
    except notebooks.NotebookError as error:
        raise PluginError(str(error)) from None


def _add_files(
    files: Files, pages: Mapping[str, Path], config: MkDocsConfig, build: Build, language: Language, options: Options
) -> None:
    for uri, path in pages.items():
        notebook = notebooks.read(path)
        notebooks.check_outputs(path, notebook)
        for cell in notebook["cells"]:
            cell["source"] = cell["id"] if cell["cell_type"] == "markdown" else cell["source"]
        cache = _cache(build, language)
        notebooks.write(notebook, cache / uri)
        files.append(File(uri, str(cache), config.site_dir, config.use_directory_urls))
        for each in build.languages:
            if (given := twin(path, each)).exists():
                first = language == build.languages[0]
                content = published(given, files, build, each, options) if first else ""
                files.append((File if first else Shared).generated(config, download(uri, each), content=content))


def is_notebook(page: Page) -> bool:
    """Tell whether a page is a notebook; if mkdocs-jupyter runs it, a failing cell ends the build with one sentence."""
    if not page.file.src_uri.endswith(".ipynb"):
        return False
    render = page.render

    def rendered(config: MkDocsConfig, files: Files) -> None:
        try:
            render(config, files)
        except Exception as error:  # of nbclient, which the engine doesn't know unless it is used
            if not hasattr(error, "ename"):
                raise
            (first, *_) = re.findall(r"-{5,}\n(.*)\n", str(error)) or [""]
            reason = notebooks.reason_of(error.ename, getattr(error, "evalue", ""))
            raise PluginError(f"{page.file.src_uri}: the cell that begins with `{first}` fails ({reason}).") from None

    page.render = rendered  # type: ignore[method-assign]
    return True


def twin(path: Path, language: Language) -> Path:
    """Return the file of a notebook in a language."""
    return notebooks.twin_of(path, language.code) if language.folder else path


def download(uri: str, language: Language) -> str:
    """Return the place in the site of the file that readers download."""
    folder, _, name = uri.rpartition("/")
    ending = f".{language.code}.ipynb" if language.folder else ".ipynb"
    return f"{folder}/download/{name.removesuffix('.ipynb')}{ending}"


def published(path: Path, files: Files, build: Build, language: Language, options: Options) -> str:
    """Return a notebook as readers download it: it knows where the package is, and its links lead to the site."""
    notebook = notebooks.read(path)
    if options.source:
        notebook = notebooks.from_source(notebook, options.source)

    def absolute(link: re.Match[str]) -> str:
        target, mark, anchor = _page(link[1], path, build, options).partition("#")
        file = files.get_file_from_path(target)
        if file is None or target.endswith(".ipynb"):  # other notebooks lie beside this one
            return link[0]
        folder = language.folder if file.is_documentation_page() else ""
        return f"]({build.address}{folder}{file.url.removeprefix('./')}{mark}{anchor})"

    for cell in notebooks.prose(notebook) if build.address else ():
        cell["source"] = re.sub(r"\]\(([^)\s:]+)\)", absolute, cell["source"])
    return notebooks.text_of(notebook)


def _page(target: str, path: Path, build: Build, options: Options) -> str:
    """Return the page of a file that a notebook links to as it lies in the repository."""
    file, mark, anchor = target.partition("#")
    here = posixpath.dirname(seen(path, build.root))
    way = posixpath.normpath(posixpath.join(here, file))
    for folder in (posixpath.normpath(options.package), build.docs):
        if way.startswith(f"{folder}/"):
            return re.sub(r"\.py$", ".md", way.removeprefix(f"{folder}/")) + mark + anchor
    return way + mark + anchor


def executed(
    page: Page, converted: str, files: Files, build: Build, site: Site, options: Options
) -> cells.NotebookPage:
    """Make the page of a notebook."""
    path, links = build.root / page.file.src_uri, Links(page, files)
    return cells.annotate(
        path,
        converted,
        package=build.root / options.package,
        language=site.language.code,
        catalogue=build.catalogue(path.stem, site.language),
        katex=build.katex,
        label=site.label,
        links=lambda target: links(_page(target, path, build, options)),
    )


def context(page: Page, made: cells.NotebookPage, build: Build, site: Site) -> dict[str, Any]:
    """Return what the template of a notebook needs beside that of any page."""
    path, repo = build.root / page.file.src_uri, urlsplit(site.repo)
    given = own if (own := twin(path, site.language)).exists() else path
    file = Path(page.file.src_uri).with_name(given.name).as_posix()
    where = f"{repo.path.strip('/').removesuffix('.git')}/blob/{site.ref}/{file}"
    return {
        "nb": made,
        "downloads": [
            (each, download(page.file.src_uri, each)) for each in build.languages if twin(path, each).exists()
        ],
        "colab": f"https://colab.research.google.com/github/{where}" if repo.netloc == "github.com" else "",
    }
