"""Where the engine and mkdocs-jupyter meet: which notebooks are pages, what mkdocs-jupyter is told, what readers download.

The notebooks lie beside `docs`, not in it. In each language MkDocs is handed a copy in the cache whose text is left out,
so that mkdocs-jupyter makes HTML of code and outputs, and of nothing else.
"""

from __future__ import annotations

import json
import os
import posixpath
import re
from collections.abc import Mapping
from html import escape
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import ConfigurationError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from mkdocs.structure.toc import AnchorLink, TableOfContents

from . import cells, notebooks
from .heads import Language
from .languages import Build, Links, Options
from .site import Site

ONLY = ["*.ipynb"]


def settle(config: MkDocsConfig, options: Options, build: Build, language: Language) -> dict[str, Path]:
    """Tell mkdocs-jupyter to leave Python and Markdown files alone and to pass no error; return the notebooks by page."""
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
                f"mkdocs-jupyter would take {', '.join(sorted(set(jupyter.config['include']) - set(ONLY)))}, too, and "
                f"the pages with them: it gets only the notebooks. Write `include: {json.dumps(ONLY)}` below it."
            )
        folder = build.root / ".cache" / "mkdocs-jupyter" / language.code
        jupyter.config.update(include=ONLY, allow_errors=False, cache_dir=str(folder))
    return {f"{options.notebooks}/{name}.ipynb": path for name, path in found.items()}


def add_files(
    files: Files, pages: Mapping[str, Path], config: MkDocsConfig, build: Build, language: Language, options: Options
) -> None:
    """Add a page for each notebook, and in the default language what can be downloaded, in every language."""
    for uri, path in pages.items():
        notebook = notebooks.read(path)
        notebooks.check_outputs(path, notebook)
        for cell in notebook["cells"]:
            cell["source"] = cell["id"] if cell["cell_type"] == "markdown" else cell["source"]
        cache = (build.root / ".cache" / "notebooks" / language.code).resolve()
        notebooks.write(notebook, cache / uri)
        files.append(File(uri, str(cache), config.site_dir, config.use_directory_urls))
        if language == build.languages[0]:
            for each in build.languages:
                if (given := twin(path, each)).exists():
                    content = published(given, build, each, options)
                    files.append(File.generated(config, download(uri, each), content=content))


def twin(path: Path, language: Language) -> Path:
    """Return the file of a notebook in a language."""
    return notebooks.twin_of(path, language.code) if language.folder else path


def download(uri: str, language: Language) -> str:
    """Return the place in the site of the file that readers download."""
    folder, _, name = uri.rpartition("/")
    ending = f".{language.code}.ipynb" if language.folder else ".ipynb"
    return f"{folder}/download/{name.removesuffix('.ipynb')}{ending}"


def published(path: Path, build: Build, language: Language, options: Options) -> str:
    """Return a notebook as readers download it: it knows where the package is, and its links lead to the site."""
    notebook = notebooks.read(path)
    if options.source:
        notebook = notebooks.from_source(notebook, options.source)

    def absolute(link: re.Match[str]) -> str:
        page, _, anchor = _page(link[1], path, build.root, options).partition("#")
        address = f"{build.address}{language.folder}{page.removesuffix('.md')}/" + (f"#{anchor}" if anchor else "")
        return f"]({address})" if page.endswith(".md") else link[0]

    for cell in notebooks.prose(notebook) if build.address else ():
        cell["source"] = re.sub(r"\]\(([^)\s:]+)\)", absolute, cell["source"])
    return notebooks.text_of(notebook)


def _page(target: str, path: Path, root: Path, options: Options) -> str:
    """Return the page of a file that a notebook links to as it lies in the repository."""
    file, mark, anchor = target.partition("#")
    here = posixpath.dirname(Path(os.path.relpath(path, root)).as_posix())
    way = posixpath.normpath(posixpath.join(here, file))
    for folder in (options.package, "docs"):
        if way.startswith(f"{folder}/"):
            return re.sub(r"\.py$", ".md", way.removeprefix(f"{folder}/")) + mark + anchor
    return way + mark + anchor


def make_page(
    page: Page, converted: str, path: Path, files: Files, build: Build, language: Language, site: Site, options: Options
) -> cells.NotebookPage:
    """Make the page of a notebook, and tell MkDocs what it asks of one."""
    links = Links(page, files)
    made = cells.annotate(
        path,
        converted,
        package=build.root / options.package,
        language=language.code,
        catalogue=build.catalogue(path.stem, language),
        katex=build.katex,
        label=site.label,
        links=lambda target: links(_page(target, path, build.root, options)),
    )
    for problem in made.problems:
        build.say(problem)
    page.meta.update(template="notebook.html", title=escape(made.title), description=made.description)
    page.present_anchor_ids = set(made.anchors)
    top = AnchorLink(made.title, "top", 1)
    top.children = [AnchorLink(item.name, item.id, 2 if item.is_class else 3) for item in made.outline]
    page.toc = TableOfContents([top])
    return made


def context(page: Page, made: cells.NotebookPage, path: Path, build: Build, site: Site) -> dict[str, Any]:
    """Return what the template of a notebook needs beside that of any page."""
    given = [(each, twin(path, each)) for each in build.languages]
    own = twin(path, site.language)
    source = urlsplit(site.repo)
    where = f"{source.path.strip('/').removesuffix('.git')}/blob/{site.ref}/{Path(os.path.relpath(own, build.root)).as_posix()}"
    return {
        "nb": made,
        "downloads": [(each, download(page.file.src_uri, each)) for each, file in given if file.exists()],
        "colab": f"https://colab.research.google.com/github/{where}" if source.netloc == "github.com" else "",
    }
