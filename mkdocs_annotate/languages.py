"""How one build becomes several: each further language is a MkDocs build of its own, from the same mkdocs.yml.

MkDocs keeps the plugins of a configuration class, and two languages that shared one would overwrite each other's search
index. So each language has a class of its own, made once, and its plugins live as long as the process.
"""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Protocol, cast
from urllib.parse import urldefrag

from jinja2 import Environment, pass_context
from markupsafe import Markup
from mkdocs.commands.build import build
from mkdocs.config import base, config_options
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import ConfigurationError, PluginError
from mkdocs.plugins import get_plugin_logger
from mkdocs.structure import StructureItem
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from mkdocs.structure.toc import AnchorLink, TableOfContents
from mkdocs.utils import get_relative_url, write_file
from mkdocs.utils.templates import TemplateContext, script_tag_filter, url_filter

from .beside import beside, stamped
from .catalogue import Catalogue, CatalogueError
from .cells import NotebookPage
from .equations import Katex
from .errors import seen
from .heads import Language, address_of, languages, sitemap
from .labels import Labels
from .page import AnnotatedPage, annotate
from .site import SCRIPT, STYLES, Site, assets, first_line
from .sources import PackageError, pages
from .unbroken import unbroken

log = get_plugin_logger("annotate")
_classes: dict[tuple[str, str], type[MkDocsConfig]] = {}


class Options(base.Config):
    """What mkdocs.yml says below `annotate:`."""

    package = config_options.Type(str)
    exclude = config_options.ListOfItems(config_options.Type(str), default=[])
    languages = config_options.Type(dict, default={"en": "English"})
    locale = config_options.Type(str, default="locale")
    figures = config_options.Type(str, default="docs/figures")
    anchors = config_options.Type(str, default="anchors.tsv")
    npm = config_options.Type(str, default="node_modules")
    ref = config_options.Type(str, default="main")
    card = config_options.Type(str, default="")
    notebooks = config_options.Type(str, default="")
    source = config_options.Type(str, default="")


@dataclass
class Build:
    """What the languages of one build share."""

    root: Path
    docs: str
    """The folder of the hand-written pages, seen from `root`."""
    languages: tuple[Language, ...]
    locale: Path
    katex: Katex
    address: str
    """Where the site will be; empty if that isn't known."""
    headings: dict[str, list[str]] = field(default_factory=dict)
    """Anchors of the headings of each hand-written page in the default language."""
    _said: set[str] = field(default_factory=set)

    @classmethod
    def begin(cls, options: Options, root: Path, docs: str, site_url: str | None) -> Build:
        """Begin a build of all languages; `site_url` is None where the address is nobody's business."""
        if site_url == "":
            log.info("`site_url` is not set: no canonical and hreflang links and no sitemap in this site.")
        if not options.languages:
            raise ConfigurationError("annotate needs a language: write `languages: {en: English}`, or leave it out.")
        if (root / options.locale).is_file():
            raise ConfigurationError(f"{options.locale} is a file: `locale` names the folder of the catalogues.")
        katex = Katex(root / options.npm / "katex", root / ".cache" / "katex.json")
        return cls(
            root, seen(docs, root), languages(options.languages), root / options.locale, katex, address_of(site_url)
        )

    def site(self, language: Language, config: MkDocsConfig, options: Options) -> Site:
        """Return the site as it is in one language."""
        labels = {each: Labels(self.catalogue("site", each)) for each in self.languages}
        figures = self.root / options.figures
        return Site(language, labels, self.address, config.repo_url or "", options.ref, figures)

    def say(self, message: str) -> None:
        """Warn, once whatever the number of languages; a strict build fails."""
        if message not in self._said:
            self._said.add(message)
            log.warning(message)

    def finish(
        self,
        folder: str,
        site: Site,
        pages: Iterable[str],
        made: Iterable[AnnotatedPage | NotebookPage],
        untold: Iterable[str],
    ) -> None:
        """Write the sitemap of a language, if the address is known; list what isn't translated, and fail no build."""
        if self.address:
            text = sitemap(self.address, site.language, self.languages, pages)
            write_file(text.encode(), f"{folder}/sitemap.xml")
        todo = [f"{page.name}: {page.todo_count}" for page in made if page.todo_count]
        missing = [f'"{text}"' for text in site.label.missing]
        for what, names in (("texts", todo), ("pages", sorted(untold)), ("labels", missing)):
            if names:
                code = site.language.code
                log.info(f"{code}: not translated, so in English and marked: {what} ({', '.join(names)})")

    def catalogue(self, name: str, language: Language) -> Catalogue | None:
        """Return a catalogue, or None for the default language; a broken one is reported and counts as empty."""
        path = self.locale / language.code / f"{name}.po"
        try:
            return Catalogue.load(path) if language.folder else None
        except CatalogueError as error:
            self.say(str(error))
            return Catalogue(path, [], None)

    def fill(self, page: Page, made: AnnotatedPage | NotebookPage, template: str) -> str:
        """Tell MkDocs what it asks of a page: title, description, contents, anchors; return the page's HTML."""
        for problem in made.problems:
            self.say(problem)
        page.meta.update(template=template, title=escape(made.title), description=made.description)
        page.present_anchor_ids = set(made.anchors)
        top = AnchorLink(made.title, "top", 1)
        top.children = [AnchorLink(item.name, item.id, 2) for item in made.outline]
        page.toc = TableOfContents([top])
        return made.html if isinstance(made, NotebookPage) else ""  # the rows come later

    def same_headings(self, page: Page, language: Language) -> None:
        """Remember the headings of a page in the default language; warn if its twin has others."""
        found = list(anchors(page.toc))
        english = self.headings.setdefault(page.file.src_uri, found)
        if found != english:
            self.say(
                f"{page.file.src_uri}: the page has {len(english)} headings, but {len(found)} in the language "
                f"{language.code}: each heading takes the anchor of its counterpart, so there must be as many."
            )


def load(language: Language, default: MkDocsConfig) -> MkDocsConfig:
    """Return the configuration of a further language, next to that of the default one."""
    path = default.config_file_path
    if not path:
        raise ConfigurationError("Several languages need a mkdocs.yml on disk: name it with -f.")
    config = _class_of(path, language.code)(config_file_path=path)
    with open(path, "rb") as file:
        config.load_file(file)
    config.load_dict(
        {
            "site_dir": posixpath.join(default.site_dir, language.code),
            "site_url": default.site_url and f"{default.site_url.rstrip('/')}/{language.folder}",
            "use_directory_urls": default.use_directory_urls,
            "strict": False,  # the build of the default language counts the warnings of all
        }
    )
    errors, _ = config.validate()
    if errors:
        raise ConfigurationError(f"mkdocs.yml, {language.code}: {errors[0][0]}: {errors[0][1]}")
    return config


def _class_of(path: str, code: str) -> type[MkDocsConfig]:
    if (path, code) not in _classes:
        options = {
            "plugins": config_options.Plugins(theme_key="theme", default=["search"]),
            "hooks": config_options.Hooks("plugins"),
        }
        _classes[path, code] = cast(type[MkDocsConfig], type("LanguageConfig", (MkDocsConfig,), options))
    return _classes[path, code]


def dress(config: MkDocsConfig, site: Site) -> None:
    """Put the engine's templates before Material's, and let Material speak the language of the site."""
    theme = config.theme
    if theme.name != "material":
        raise ConfigurationError("annotate stands on MkDocs Material: write `theme: {name: material}` into mkdocs.yml.")
    for language in site.labels:
        if not any(Path(folder, f"partials/languages/{language.code}.html").is_file() for folder in theme.dirs):
            raise ConfigurationError(
                f"`languages` names {language.code}, a language that Material does not know: its codes are listed at "
                "https://squidfunk.github.io/mkdocs-material/setup/changing-the-language/."
            )
    theme.dirs.insert(1 if theme.custom_dir else 0, str(Path(__file__).with_name("theme")))
    theme["language"] = site.language.code
    theme["font"] = False  # nothing comes from another host, and annotate.css names its own faces
    palette = theme.get("palette")
    for scheme in palette if isinstance(palette, list) else []:
        if "toggle" in scheme:
            scheme["toggle"]["name"] = site.label("Light or dark")
    config.extra_css = [*STYLES, *config.extra_css]
    script = config_options.ExtraScriptValue(SCRIPT)
    script.defer = True
    config.extra_javascript = [script, *config.extra_javascript]


class Shared(File):
    """A file that isn't a page: it stays in the folder of the default language, and the others link to it there."""

    def url_relative_to(self, other: File | str) -> str:
        """Return the way to the file, out of the language's folder."""
        return _way_out(get_relative_url(".", other.url if isinstance(other, File) else other), self.url)

    def copy_file(self, dirty: bool = False) -> None:
        """Leave the file where it is."""


def _way_out(top: str, url: str) -> str:
    """Return the way to a file of the default language, given the way to the top of another one."""
    return posixpath.normpath(posixpath.join(top, "..", url))


def share(files: Files) -> None:
    """Let a further language use the files of the default one that aren't pages."""
    for file in [file for file in files if not file.is_documentation_page()]:
        files.remove(file)
        files.append(
            Shared(file.src_uri, file.src_dir, file.dest_dir, file.use_directory_urls, inclusion=file.inclusion)
        )


def equip(env: Environment, files: Files) -> None:
    """Give the templates their filters; those that lead to a file find the files that the languages share."""
    shared = {file.src_uri for file in files if isinstance(file, Shared)}

    @pass_context
    def url(context: TemplateContext, value: object) -> str:
        if str(value) in shared:
            return _way_out(url_filter(context, "."), str(value))
        return url_filter(context, str(value))

    @pass_context
    def script_tag(context: TemplateContext, script: config_options.ExtraScriptValue) -> str:
        tag = str(script_tag_filter(context, script))
        return Markup(tag.replace('src="', 'src="../', 1) if str(script) in shared else tag)

    env.filters.update(url=url, script_tag=script_tag, first_line=first_line, beside=beside)
    env.filters.update(stamped=stamped, unbroken=unbroken)


def add_files(files: Files, modules: Mapping[str, Path], npm: Path, config: MkDocsConfig) -> None:
    """Add an empty page for each module, and what comes from npm."""
    # heads.py makes one that knows the languages. Before this, MkDocs would take the template for a file to be copied.
    config.theme.static_templates.discard("sitemap.xml")
    for uri, path in modules.items():
        if written := files.get_file_from_path(uri):
            raise PluginError(_SAME_PAGE.format(_source(written), path.as_posix()))
        files.append(File.generated(config, uri, content=""))
    for target, content in assets(npm):
        files.append(File.generated(config, target, content=content))


def find_modules(root: Path, options: Options) -> dict[str, Path]:
    """Find the module of each page of the package."""
    try:
        return pages(root / options.package, options.exclude)
    except PackageError as error:
        raise ConfigurationError(str(error)) from None


def refuse_overwriting(files: Files, modules: Mapping[str, Path], known: Sequence[Language]) -> None:
    """Refuse two files that would be written to one place, and files in the folder of a further language."""
    taken: dict[str, str] = {}
    for file in files:
        if not file.inclusion.is_excluded():
            name = modules[file.src_uri].as_posix() if file.src_uri in modules else _source(file)
            first = taken.setdefault(file.dest_uri, name)
            if first != name:
                raise PluginError(_SAME_PAGE.format(first, name))
    for language in known[1:]:
        for uri in [uri for uri in taken if uri.startswith(language.folder)]:
            if twin := taken.get(uri.removeprefix(language.folder)):
                raise PluginError(_SAME_PAGE.format(taken[uri], f"{twin} in the language {language.code}"))
            raise PluginError(
                f"{taken[uri]} would be written into {language.folder}, which holds only the pages of the language "
                f"{language.code}: rename or move it."
            )


_SAME_PAGE = "{} and {} would be the same page: rename one of them."


def _source(file: File) -> str:
    """Return the path of a file as its author knows it."""
    return seen(file.abs_src_path) if file.abs_src_path else file.src_uri


def take_twins(files: Files, language: Language, known: Sequence[Language]) -> set[str]:
    """Put each page's twin (`index.ja.md`) in its place and return the pages that have none; no twin stays a page."""
    pages = {file.src_uri: file for file in files.documentation_pages() if file.generated_by is None}
    own = f".{language.code}.md"
    untold = set()
    for each in known[1:]:
        for uri in [uri for uri in pages if uri.endswith(f".{each.code}.md")]:
            files.remove(pages[uri])
    for uri, file in pages.items():
        if language == known[0] or files.get_file_from_path(uri) is None:
            continue
        twin = pages.get(uri.removesuffix(".md") + own)
        if twin:
            file.abs_src_path = twin.abs_src_path
        else:
            untold.add(uri)
    return untold


def translate_titles(items: Sequence[StructureItem], translate: Callable[[str], str]) -> None:
    """Translate the titles that `nav` in mkdocs.yml gives; the titles of pages are their own."""
    for item in items:
        if not item.is_page or "title" in vars(item):
            item.title = translate(str(item.title))
        translate_titles(getattr(item, "children", None) or (), translate)


class Anchors:
    """Gives the headings of a twin the anchors of the English page, one after the other (a `slugify` for `toc`).

    An anchor that the twin's own text fixes (`{#name}`) is not handed out.
    """

    def __init__(self, anchors: Sequence[str], markdown: str) -> None:
        self.left = [anchor for anchor in anchors if not re.search(rf"{{:?\s*#{re.escape(anchor)}\b", markdown)]

    def __call__(self, heading: str, separator: str) -> str:
        """Return the anchor of the next heading."""
        return self.left.pop(0) if self.left else "heading"


def anchors(toc: TableOfContents | Sequence[AnchorLink]) -> Iterator[str]:
    """Go through the anchors of a page's headings, in order."""
    for entry in toc:
        yield entry.id
        yield from anchors(entry.children)


class Links:
    """Turns a link of a module's prose (`adam.md#Adam`, `figures/adam.svg`) into its address seen from the page."""

    def __init__(self, page: Page, files: Files) -> None:
        self.page = page
        self.files = files

    def __call__(self, target: str) -> str | None:
        """Return the address, or None if the site has no such file; MkDocs will look at the anchor."""
        path, anchor = urldefrag(target)
        here = posixpath.dirname(self.page.file.src_uri)
        for uri in (posixpath.normpath(posixpath.join(here, path)), path):
            file = self.files.get_file_from_path(uri)
            if file and not file.inclusion.is_excluded():
                if anchor:
                    known = self.page.links_to_anchors = self.page.links_to_anchors or {}
                    known.setdefault(file, {})[anchor] = target
                return file.url_relative_to(self.page.file) + (f"#{anchor}" if anchor else "")
        return None


def watched(root: Path, options: Options, config: MkDocsConfig) -> list[str]:
    """Return the folders that MkDocs doesn't watch by itself, and that the site is made from."""
    named = [root / name for name in (options.package, options.locale, options.notebooks) if name]
    return [str(folder) for folder in (*named, config.theme.custom_dir) if folder and os.path.isdir(folder)]


def annotated(page: Page, path: Path, files: Files, build: Build, site: Site) -> AnnotatedPage:
    """Make the page of a module; its rows become the content when the templates are at hand."""
    name = page.file.src_uri.removesuffix(".md")
    return annotate(
        path,
        name=name,
        language=site.language.code,
        catalogue=build.catalogue(name, site.language),
        katex=build.katex,
        figures_dir=site.figures,
        label=site.label,
        links=Links(page, files),
    )


class Plugin(Protocol):
    """What is needed of the plugin here."""

    build: Build
    code: str
    serving: bool


def build_others(plugin: Plugin, config: MkDocsConfig) -> None:
    """Build the further languages, each with a plugin of its own that shares the `Build` of the first."""
    for language in plugin.build.languages[1:]:
        new = (config.config_file_path or "", language.code) not in _classes
        other = load(language, config)
        if new:
            other.plugins.on_startup(command="serve" if plugin.serving else "build", dirty=False)
        own = next(each for each in other.plugins.values() if isinstance(each, type(plugin)))
        own.build, own.code = plugin.build, language.code
        build(other, serve_url=other.site_url if plugin.serving else None)
