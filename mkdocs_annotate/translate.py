"""Commands for translators: `translate` brings catalogues in line with their sources, `check` lists what is wrong.

Both read mkdocs.yml for what belongs to the site. `check` knows three kinds of text: those of the catalogues of the
pages, labels and navigation (``site.po``), and hand-written pages, each with a twin per language (``index.md``,
``index.ja.md``). A twin carries in its front matter the digest of the page it was made from (``source_digest``); when
the page changed, the twin has to be revised and then accepted: ``translate --accept docs/index.ja.md``.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from . import anchors, labels, notebooks, page
from .catalogue import Catalogue, CatalogueError, Message, update
from .rows import SourceError
from .sources import PackageError, modules
from .spans import Finding, TextKind, differences, prose

COMMAND = "python -m mkdocs_annotate translate"


@dataclass(frozen=True, order=True)
class Problem:
    """Something wrong, in one sentence, at a line of a file."""

    path: str
    line: int
    message: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.message}"


class ProjectError(Exception):
    """Something that the commands need is not there; the text is one sentence that says what to do."""


@dataclass(frozen=True)
class Project:
    """What mkdocs.yml says about sources and languages."""

    root: Path
    docs: Path
    package: Path
    exclude: tuple[str, ...]
    locale: Path
    anchors: Path
    npm: Path
    languages: tuple[str, ...]
    nav: object
    notebooks: Path | None = None

    @classmethod
    def load(cls, config: Path) -> Project:
        """Read mkdocs.yml."""
        try:
            settings = yaml.load(config.read_text(encoding="utf-8"), Loader=_Loader)
        except FileNotFoundError:
            raise ProjectError(f"{config.as_posix()} is not there; run this in the folder of mkdocs.yml.") from None
        except yaml.MarkedYAMLError as error:
            line = error.problem_mark.line + 1 if error.problem_mark else 1
            raise ProjectError(f"{config.as_posix()}:{line}: {error.problem}.") from None
        except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
            raise ProjectError(f"{config.as_posix()} can't be read: {' '.join(str(error).split())}.") from None
        settings = settings if isinstance(settings, dict) else {}
        plugins = settings.get("plugins") or []
        named = [plugin for plugin in (plugins if isinstance(plugins, list) else [plugins]) if isinstance(plugin, dict)]
        given = (plugin["annotate"] for plugin in named if isinstance(plugin.get("annotate"), dict))
        found: dict[str, Any] = next(given, {})
        options = {name: value for name, value in found.items() if value is not None}  # left empty, it has its default
        if "package" not in options:
            raise ProjectError(f"{config.as_posix()}: the plugin annotate with its option `package` is not there.")
        root = config.parent
        if (root / options.get("locale", "locale")).is_file():
            raise ProjectError(
                f"{options.get('locale', 'locale')} is a file: `locale` names the folder of the catalogues."
            )
        return cls(
            root=root,
            docs=root / (settings.get("docs_dir") or "docs"),
            package=root / options["package"],
            exclude=tuple(options.get("exclude", ())),
            locale=root / options.get("locale", "locale"),
            anchors=root / options.get("anchors", "anchors.tsv"),
            npm=root / options.get("npm", "node_modules"),
            languages=tuple(options.get("languages") or {"en": "English"}),
            nav=settings.get("nav"),
            notebooks=root / options["notebooks"] if options.get("notebooks") else None,
        )

    @property
    def translations(self) -> tuple[str, ...]:
        """The languages that texts are translated into."""
        return self.languages[1:]

    def name(self, path: Path) -> str:
        """Return a path as it is shown."""
        return path.relative_to(self.root).as_posix() if path.is_relative_to(self.root) else path.as_posix()

    def modules(self) -> dict[str, Path]:
        """Find the modules that are pages."""
        try:
            return modules(self.package, self.exclude)
        except PackageError as error:
            raise ProjectError(str(error)) from None

    def notebook_paths(self) -> dict[str, Path]:
        """Find the notebooks, by name."""
        return notebooks.find(self.notebooks) if self.notebooks else {}

    def taken(self) -> set[str]:
        """Return the names of catalogues that no notebook can have."""
        return {*self.modules(), *self.exclude, "site"}

    def translatable(self, names: Iterable[str]) -> list[Path]:
        """List those notebooks, of some names, that have a catalogue."""
        taken = self.taken()
        return [path for name, path in self.notebook_paths().items() if name in names and name not in taken]

    def handwritten(self) -> list[Path]:
        """List the hand-written pages in the default language."""
        return [path for path in sorted(self.docs.rglob("*.md")) if not path.stem.endswith(self._endings)]

    def twins(self, language: str) -> list[Path]:
        """List the hand-written pages in another language."""
        return sorted(self.docs.rglob(f"*.{language}.md"))

    @property
    def _endings(self) -> tuple[str, ...]:
        return tuple(f".{language}" for language in self.translations)


class _Loader(yaml.SafeLoader):
    """Reads YAML with the tags of MkDocs (`!ENV`, `!!python/name`), whose values nobody needs here."""


_Loader.add_multi_constructor("!", lambda loader, suffix, node: None)
_Loader.add_multi_constructor("tag:yaml.org,2002:python/", lambda loader, suffix, node: None)


def catalogues(project: Project, problems: list[Problem]) -> dict[str, list[Message]]:
    """List the catalogues of a language, by name, with the messages that each has to hold.

    A source that can't be read has none: it is added to the problems.
    """
    found = {}
    for name, path in project.modules().items():
        if name == "site":
            what = "site.po is the catalogue of the labels already; rename the module, or name it in `exclude`."
            problems.append(Problem(project.name(path), 1, what))
            continue
        try:
            found[name] = page.messages(path, name)
        except SourceError as error:
            problems.append(Problem(project.name(Path(error.path)), error.line, error.message))
    for name, path in project.notebook_paths().items():
        if name in project.taken():
            what = f"{name}.po is the catalogue of another page already; rename the notebook."
            problems.append(Problem(project.name(path), 1, what))
            continue
        try:
            found[name] = notebooks.messages(path)
        except notebooks.NotebookError as error:
            problems.append(Problem(project.name(error.path), error.line, error.message))
    return {**found, "site": labels.messages(project.nav)}


def anchored(project: Project) -> anchors.Pages:
    """List the anchors of all pages whose source can be read."""
    found = {}
    for name, path in project.modules().items():
        with contextlib.suppress(SourceError):  # `catalogues` has said so
            found[name] = page.digests(path, name)
    return found


# Translate


def translate(project: Project, accept: Sequence[Path] = ()) -> tuple[list[str], list[Problem]]:
    """Bring everything that translators work on in line with its source; say what changed, and what could not."""
    report: list[str] = []
    problems: list[Problem] = []
    wanted = catalogues(project, problems)
    for language in project.translations:
        for name, messages in wanted.items():
            path = project.locale / language / f"{name}.po"
            try:
                if update(path, messages, language):
                    report.append(f"{project.name(path)}: updated")
            except CatalogueError as error:
                problems.append(Problem(project.name(path), error.line, error.message))
        for source in project.handwritten():
            twin = twin_of(source, language)
            accepted = twin.resolve() in {path.resolve() for path in accept}
            if twin.exists() and write_digest(twin, digest(source), replace=accepted):
                report.append(f"{project.name(twin)}: follows {project.name(source)} as it is now")
        for path in project.translatable(wanted):
            try:
                report += write_twins(project, path)
            except notebooks.NotebookError as error:
                problems.append(Problem(project.name(error.path), error.line, error.message))
            except CatalogueError:
                pass  # `update` has said so
        report.append(f"{language}: {progress(project, language, wanted)}")
    try:
        pages = anchored(project)
        changes = anchors.check(project.anchors, pages)
        if not problems and anchors.update(project.anchors, pages):
            report.append(f"{project.name(project.anchors)}: updated")
            # What may break the links of others is said; it stays as it is unless an anchor is fixed.
            report += [f"{project.name(project.anchors)}: {change}" for change in changes if change.what in _BREAKING]
    except anchors.AnchorsError as error:
        problems.append(Problem(project.name(error.path), error.line, error.message))
    return report, problems


_BREAKING = ("moved", "gone")


def write_twins(project: Project, path: Path) -> list[str]:
    """Make the twins of a notebook in the other languages anew; say which ones changed."""
    notebook = notebooks.read(path)
    changed = []
    for language in project.translations:
        catalogue = Catalogue.load(project.locale / language / f"{path.stem}.po")
        twin = notebooks.twin_of(path, language)
        if notebooks.write(notebooks.translated(path, notebook, catalogue), twin):
            changed.append(f"{project.name(twin)}: follows {project.name(path)} as it is now")
    return changed


def check_notebooks(project: Project, language: str, names: Iterable[str]) -> list[Problem]:
    """List the twins that say something else than the notebook and its catalogue."""
    problems = []
    for path in project.translatable(names):
        twin = notebooks.twin_of(path, language)
        try:
            catalogue = Catalogue.load(project.locale / language / f"{path.stem}.po")
            wanted = notebooks.translated(path, notebooks.read(path), catalogue)
            if not twin.exists() or notebooks.read(twin) != wanted:
                what = f"this is not what {project.name(path)} and its catalogue say; run `{COMMAND}`."
                problems.append(Problem(project.name(twin), 1, what))
        except notebooks.NotebookError as error:  # the twin's: of the notebook, `catalogues` has said so
            problems.append(Problem(project.name(error.path), error.line, error.message))
        except CatalogueError:
            pass  # check_catalogue says so
    return problems


def check_anchors(project: Project) -> list[Problem]:
    """List the anchors that stand for another row than the committed list says, or are not in it."""
    shown = project.name(project.anchors)
    try:
        changes = anchors.check(project.anchors, anchored(project))
    except anchors.AnchorsError as error:
        return [Problem(shown, error.line, error.message)]
    if not project.anchors.exists():
        return [Problem(shown, 1, f"there is no list of the anchors; run `{COMMAND}`.")]
    return [Problem(shown, change.line or 1, f"{change} Then run `{COMMAND}`.") for change in changes]


def progress(project: Project, language: str, wanted: dict[str, list[Message]]) -> str:
    """Say how many texts are translated."""
    states: list[str] = []
    for name, messages in wanted.items():
        try:
            catalogue = Catalogue.load(project.locale / language / f"{name}.po")
        except CatalogueError:
            states += ["unreadable"] * len(messages)
        else:
            states += [catalogue.lookup(*message.key).state for message in messages]
    rest = ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states) if state != "ok")
    return f"{states.count('ok')} of {len(states)} texts are translated{f' ({rest})' if rest else ''}"


def digest(path: Path) -> str:
    """Digest of a page, the same whatever its line ends."""
    return hashlib.sha256("\n".join(path.read_text(encoding="utf-8").splitlines()).encode()).hexdigest()[:12]


_FRONT_MATTER = re.compile(r"\A---[ \t]*\n(.*?\n)?---[ \t]*(?:\n|\Z)", re.DOTALL)
_DIGEST = re.compile(r"^source_digest:[ \t]*(.*?)[ \t]*$", re.MULTILINE)


def read_digest(text: str) -> str:
    """Return the digest that a page's front matter holds, or nothing."""
    front = _FRONT_MATTER.match(text)
    found = _DIGEST.search(front[0]) if front else None
    return found[1].strip("\"'") if found else ""


def write_digest(twin: Path, value: str, *, replace: bool) -> bool:
    """Write the digest of a page into its twin if there is none or it may be replaced; return whether it changed."""
    text = twin.read_text(encoding="utf-8")
    old = read_digest(text)
    if old == value or (old and not replace):
        return False
    front = _FRONT_MATTER.match(text)
    if front and _DIGEST.search(front[0]):  # it may be empty
        text = _DIGEST.sub(f"source_digest: {value}", text, count=1)
    elif front:
        text = f"---\n{front[1] or ''}source_digest: {value}\n---\n{text[front.end() :]}"
    else:
        text = f"---\nsource_digest: {value}\n---\n\n{text}"
    twin.write_text(text, encoding="utf-8", newline="\n")
    return True


# Check


@dataclass(frozen=True)
class Text:
    """A translated text: where it stands, what it says, and what the English says."""

    path: str
    kind: TextKind
    markdown: str
    english: str
    line: Callable[[int], int]


def check(project: Project, only: Sequence[str] = ()) -> list[Problem]:
    """List everything that is wrong with the translations, in all languages; of some pages only if these are named."""
    problems: list[Problem] = []
    wanted = catalogues(project, problems)
    pages = project.handwritten()
    if only:
        wanted = {name: messages for name, messages in wanted.items() if name in only}
        pages = [path for path in pages if path.relative_to(project.docs).with_suffix("").as_posix() in only]
        known = [*wanted, *(path.relative_to(project.docs).with_suffix("").as_posix() for path in pages)]
        for name in only:
            if name not in known:
                raise ProjectError(
                    f'no page is named "{name}"; a name is that of a module or of a file in {project.docs.name}.'
                )
    if not only:
        problems += check_anchors(project)
    for language in project.translations:
        texts: list[Text] = []
        for name, messages in wanted.items():
            problems += check_catalogue(project, language, name, messages, texts)
        problems += check_twins(project, language, pages, texts)
        problems += check_notebooks(project, language, wanted)
        for name in project.exclude if not only else ():
            problems += check_own_catalogue(project, language, name, texts)
        if not only:
            problems += strangers(project, language, wanted)
        for text in texts:
            found = differences(text.english, text.markdown)
            problems += [Problem(text.path, text.line(each.offset), each.message) for each in found]
        if language == "ja":
            problems += check_japanese(project, texts)
    return sorted(set(problems))


def check_catalogue(
    project: Project, language: str, name: str, messages: Sequence[Message], texts: list[Text]
) -> list[Problem]:
    """List what a catalogue lacks; add what it holds to the texts."""
    path = project.locale / language / f"{name}.po"
    shown = project.name(path)
    if not path.exists() and messages:
        return [Problem(shown, 1, f"there is no such catalogue for {len(messages)} texts; run `{COMMAND}`.")]
    try:
        catalogue = Catalogue.load(path)
    except CatalogueError as error:
        return [Problem(shown, error.line, error.message)]
    problems = []
    used = set()
    for message in messages:
        item = catalogue.item(*message.key)
        entry = catalogue.lookup(*message.key)
        place = f'"{message.context}"' if message.context not in ("label", "nav") else f'"{message.text}"'
        if item is not None:
            used.add(item.key)
        if item is None:
            what = f"{place} is not in {shown}; run `{COMMAND}`."
            where = re.fullmatch(r"(.*?):(\d+)(?::\d+)?", message.location)
            location = Path(where[1]) if where else path
            problems.append(Problem(project.name(location), int(where[2]) if where else 1, what))
        elif entry.state == "missing":
            problems.append(Problem(shown, item.line, f"{place} is not translated."))
        elif entry.state == "stale":
            problems.append(
                Problem(
                    shown, item.line, f"{place}: the English text changed; run `{COMMAND}` and revise the translation."
                )
            )
        elif entry.state == "fuzzy":
            problems.append(Problem(shown, item.line, f"{place} is marked fuzzy; revise it and delete the mark."))
        else:
            texts.append(Text(shown, kind_of(message.context), item.msgstr, item.msgid, item.line_at))
    for item in catalogue:
        if item.key not in used:
            what = f'"{item.context}" is not in the source any more; run `{COMMAND}`.'
            problems.append(Problem(shown, item.line, what))
    return problems


def check_own_catalogue(project: Project, language: str, name: str, texts: list[Text]) -> list[Problem]:
    """Do the same for a catalogue that a module keeps for itself: one that is no page (it draws figures, say)."""
    path = project.locale / language / f"{name}.po"
    shown = project.name(path)
    problems = []
    try:
        for item in Catalogue.load(path):
            if item.fuzzy or not item.translated:
                what = "is marked fuzzy; revise it and delete the mark" if item.fuzzy else "is not translated"
                problems.append(Problem(shown, item.line, f'"{item.msgid}" {what}.'))
            else:
                kind: TextKind = "prose" if item.msgstr.rstrip().endswith("。") else "item"
                texts.append(Text(shown, kind, item.msgstr, item.msgid, item.line_at))
    except CatalogueError as error:
        problems.append(Problem(shown, error.line, error.message))
    return problems


def kind_of(context: str) -> TextKind:
    """Tell what kind of text stands at a place."""
    if context == "nav" or context.endswith("#title"):
        return "heading"
    if context == "label" or context.endswith(("#paper", "#kept")) or "#symbol" in context:
        return "item"
    return "prose"


def strangers(project: Project, language: str, wanted: Iterable[str]) -> list[Problem]:
    """List the catalogues and the twins that belong to no page."""
    folder = project.locale / language
    known = {folder / f"{name}.po" for name in (*wanted, *project.exclude)}
    found = [path for path in sorted(folder.rglob("*.po")) if path not in known]
    problems = [
        Problem(project.name(path), 1, "no page has this name; rename or delete the catalogue.") for path in found
    ]
    twins = {twin_of(source, language) for source in project.handwritten()}
    found = [path for path in project.twins(language) if path not in twins]
    if project.notebooks:
        own = {notebooks.twin_of(path, language) for path in project.notebook_paths().values()}
        found += [path for path in sorted(project.notebooks.glob(f"*.{language}.ipynb")) if path not in own]
    message = "the page that this one translates is gone; delete or rename it."
    return problems + [Problem(project.name(path), 1, message) for path in found]


def twin_of(source: Path, language: str) -> Path:
    """Return where the translation of a hand-written page is."""
    return source.with_name(f"{source.stem}.{language}.md")


def check_twins(project: Project, language: str, pages: Iterable[Path], texts: list[Text]) -> list[Problem]:
    """List the hand-written pages without a twin and the twins that do not follow; add the others to the texts."""
    problems = []
    for source in pages:
        twin = twin_of(source, language)
        shown = project.name(twin)
        if not twin.exists():
            problems.append(Problem(project.name(source), 1, f"the page has no twin {twin.name}."))
            continue
        text, english = twin.read_text(encoding="utf-8"), source.read_text(encoding="utf-8")
        old = read_digest(text)
        if not old:
            problems.append(Problem(shown, 1, f"its front matter has no source_digest; run `{COMMAND}`."))
        elif old != digest(source):
            accept = f"`{COMMAND} --accept {shown}`"
            problems.append(Problem(shown, 1, f"{project.name(source)} changed; revise this page and run {accept}."))
        texts += page_texts(shown, text, english)
    return problems


def page_texts(shown: str, text: str, english: str) -> Iterator[Text]:
    """Take a hand-written page apart: title and description of its front matter, and its body."""
    front, body = _apart(text)
    english_front, english_body = _apart(english)
    for key, kind in (("title", "heading"), ("description", "item")):
        here = re.search(rf"^{key}:[ \t]*(.+?)[ \t]*$", front, re.MULTILINE)
        there = re.search(rf"^{key}:[ \t]*(.+?)[ \t]*$", english_front, re.MULTILINE)
        if here:
            line = 1 + front.count("\n", 0, here.start())
            value = here[1].strip("\"'")
            yield Text(shown, kind, value, there[1] if there else "", lambda _, line=line: line)  # type: ignore[misc, arg-type]
    yield Text(shown, "prose", body, english_body, lambda offset: 1 + front.count("\n") + body.count("\n", 0, offset))


def _apart(text: str) -> tuple[str, str]:
    front = _FRONT_MATTER.match(text)
    end = front.end() if front else 0
    return text[:end], text[end:]


def check_japanese(project: Project, texts: Sequence[Text]) -> list[Problem]:
    """Put all Japanese texts through the checks of `japanese`.

    The glossary is ``glossary-ja.tsv`` in the folder of the catalogues, its exceptions ``glossary-ja-exceptions.tsv``;
    textlint reads the texts if the project has a ``.textlintrc.json``.
    """
    try:
        from . import japanese
    except ModuleNotFoundError as error:
        install = "`pip install './mkdocs_annotate[japanese]'` in the clone of its repository"
        what = f"the checks of Japanese need {error.name}: {install}."
        raise ProjectError(what) from None
    table, exceptions = project.locale / "glossary-ja.tsv", project.locale / "glossary-ja-exceptions.tsv"
    config, cache = project.root / ".textlintrc.json", project.root / ".cache" / "textlint.json"
    read = [prose(text.markdown) for text in texts]
    lines = [(one.text, text.kind) for one, text in zip(read, texts, strict=True)]
    problems = []
    try:
        glossary = japanese.Glossary.load(table, exceptions) if table.exists() else japanese.Glossary(())
        linted = japanese.textlint(lines, config, project.npm, cache) if config.exists() else [[] for _ in lines]
    except japanese.GlossaryError as error:
        return [Problem(project.name(error.path), error.line, error.message)]
    except japanese.ToolError as error:
        raise ProjectError(str(error)) from None
    for text, one, lint in zip(texts, read, linted, strict=True):
        found = japanese.forbidden_words(one.text, glossary) + japanese.style(one.text) + lint
        found += japanese.headings(one.text, text.kind)
        found = [Finding(one.origins[each.offset], each.message) for each in found]
        found += japanese.literal_bold(text.markdown, text.english)
        for each in found:
            around = text.markdown[max(0, each.offset - 8) : each.offset + 8].replace("\n", " ").strip()
            problems.append(Problem(text.path, text.line(each.offset), f"{each.message} …{around}…"))
    return problems
