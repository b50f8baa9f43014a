"""The MkDocs plugin: nothing but glue between MkDocs and the rest of the engine."""

from __future__ import annotations

import os
from collections.abc import Callable
from html import escape
from pathlib import Path

from jinja2 import Environment
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.livereload import LiveReloadServer
from mkdocs.plugins import BasePlugin, event_priority
from mkdocs.structure.files import Files
from mkdocs.structure.nav import Navigation
from mkdocs.structure.pages import Page
from mkdocs.utils.templates import TemplateContext

from . import handwritten, heads, jupyter, languages, search
from .cells import NotebookPage
from .equations import EquationError, KatexError
from .errors import FileError, seen
from .page import AnnotatedPage
from .rows import SourceError
from .site import squeeze


class AnnotatePlugin(BasePlugin[languages.Options]):
    """Makes a page of each module of a package, and several languages of one build."""

    build: languages.Build  # shared by the languages
    code = ""  # set in the build of a further language
    serving = False

    def on_startup(self, *, command: str, dirty: bool) -> None:
        """Note whether the site is served: then its address is nobody's business."""
        if dirty:
            raise PluginError("annotate makes the pages of all languages together: leave `--dirty` out.")
        self.serving = command == "serve"

    @event_priority(50)  # before the search settles its options
    def on_config(self, config: MkDocsConfig) -> None:
        """Settle what holds for the whole build."""
        self.root = Path(seen(os.path.dirname(config.config_file_path or "mkdocs.yml") or "."))
        if not self.code:
            address = None if self.serving else config.site_url or ""
            self.build = languages.Build.begin(self.config, self.root, config.docs_dir, address)
        self.language = next(each for each in self.build.languages if self.code in ("", each.code))
        self.site = self.build.site(self.language, config, self.config)
        languages.dress(config, self.site)
        self.finder = search.prepare(config.plugins.get("material/search"), self.language.code)
        self.modules = languages.find_modules(self.root, self.config)
        self.notebooks = jupyter.settle(config, self.config, self.build, self.language)
        self.made: dict[str, AnnotatedPage | NotebookPage] = {}
        self.handwritten: dict[str, handwritten.Handwritten] = {}
        self.translated: list[str] = []

    @event_priority(50)  # before mkdocs-jupyter looks for notebooks
    def on_files(self, files: Files, *, config: MkDocsConfig) -> None:
        """Add a page for each module and what comes from npm; put the pages of this language in their places."""
        self.untold = languages.take_twins(files, self.language, self.build.languages)
        languages.add_files(files, self.modules, self.root / self.config.npm, config)
        if self.code:
            languages.share(files)
        else:
            languages.refuse_overwriting(files, self.modules, self.build.languages)
        jupyter.add_files(files, self.notebooks, config, self.build, self.language, self.config)

    def on_nav(self, nav: Navigation, *, config: MkDocsConfig, files: Files) -> None:
        """Translate the titles that mkdocs.yml gives."""
        languages.translate_titles(nav.items, self.site.label.nav)

    def on_env(self, env: Environment, *, config: MkDocsConfig, files: Files) -> None:
        """Give the templates what they need."""
        languages.equip(env, files)
        self.rows = env.get_template("partials/rows.html")

    def on_page_markdown(self, markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
        """Take the equations out of a hand-written page, and give the headings of a twin the English anchors."""
        uri = page.file.src_uri
        page.meta["untranslated"] = uri in self.untold
        if uri in self.modules or jupyter.is_notebook(page):
            return ""
        if self.code:
            config.mdx_configs.setdefault("toc", {})["slugify"] = languages.Anchors(self.build.headings[uri], markdown)
        self.handwritten[uri] = handwritten.read(markdown, page.file.content_string, page.file.abs_src_path or uri)
        return self.handwritten[uri].markdown

    def on_page_content(self, html: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
        """Make the page of a module; set the equations of a hand-written one."""
        uri = page.file.src_uri
        try:
            if uri in self.modules:
                self.made[uri] = languages.annotated(page, self.modules[uri], files, self.build, self.site)
                return self.build.fill(page, self.made[uri], "annotated.html")
            if uri in self.notebooks:
                self.made[uri] = jupyter.executed(page, html, files, self.build, self.site, self.config)
                return self.build.fill(page, self.made[uri], "notebook.html")
            if uri not in self.handwritten:
                return html
            self.build.same_headings(page, self.language)
            return self.handwritten[uri].with_equations(html, self.build.katex, self.build.say)
        except (SourceError, EquationError, FileError) as error:
            self.build.say(str(error))
            return f"<p>{self.site.label('This page could not be made:')} <code>{escape(str(error))}</code></p>"
        except KatexError as error:
            raise PluginError(str(error)) from error

    @event_priority(50)  # before the search reads the page
    def on_page_context(self, context: TemplateContext, *, page: Page, config: MkDocsConfig, nav: Navigation) -> None:
        """Hand the templates what they need, and the search what it finds."""
        known: dict[str, object] = {"site": self.site.around(page.url)}
        title, lede = heads.plain(str(page.title)), ""
        made = self.made.get(page.file.src_uri)
        if isinstance(made, AnnotatedPage):
            known |= {"ann": made, "file": self.modules[page.file.src_uri].relative_to(self.root).as_posix()}
            page.content = self.rows.render(known)
            lede = heads.plain(f"{made.lede} {made.use} {made.dont}")
        if isinstance(made, NotebookPage):
            known |= jupyter.context(page, made, self.build, self.site)
            lede = heads.plain(made.lede)
        html = page.content or ""
        search.add(self.finder, page.meta, search.entries(page.url, title, html, lede))
        self.translated += [page.url] * (not page.meta["untranslated"])
        known["head"] = self.site.head(title, html, page.meta, page.url, name=config.site_name, card=self.config.card)
        context.update(known)  # type: ignore[typeddict-item]

    def on_post_page(self, output: str, *, page: Page, config: MkDocsConfig) -> str:
        """Leave out the white space between elements."""
        return squeeze(output)

    def on_template_context(self, context: TemplateContext, *, template_name: str, config: MkDocsConfig) -> None:
        """Hand the page for unknown addresses what it needs."""
        context.update(site=self.site.around_error())  # type: ignore[call-arg]

    @event_priority(50)  # before the search writes its index
    def on_post_build(self, *, config: MkDocsConfig) -> None:
        """Finish search index and sitemap, then build the other languages."""
        search.finish(self.finder, self.language.code)
        self.build.finish(config.site_dir, self.site, self.translated, self.made.values(), self.untold)
        if not self.code:
            languages.build_others(self, config)
            self.build.katex.close()

    def on_serve(self, server: LiveReloadServer, *, config: MkDocsConfig, builder: Callable[..., None]) -> None:
        """Build again when a module, a catalogue or a template changes."""
        for folder in languages.watched(self.root, self.config, config):
            server.watch(folder)
