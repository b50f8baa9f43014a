"""Catalogues: what is translated, how far, and how a catalogue follows its source.

A catalogue is a gettext file (``locale/<language>/<page>.po``). Its entries are *messages*: ``msgctxt`` says where a
text stands (``adam:Adam.get_mv-2``, ``adam#title``) or, where many share it, of which kind they are (``label``);
``msgid`` is the English Markdown, ``msgstr`` the translation. A text is shown translated only if the catalogue holds
exactly this English text in this context and nobody doubts it (*fuzzy*); else the English is shown.

The reader is strict: a file that is broken anywhere is refused with its line, because a lenient reader would drop
translations without a word. Escapes are Babel's.
"""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from pathlib import Path
from typing import Literal, TypeVar

from babel.messages.pofile import normalize, unescape

from .errors import FileError

State = Literal["ok", "missing", "stale", "fuzzy"]

# Below this share of common characters two texts have nothing to say to each other (gettext's own threshold).
SIMILAR = 0.6

_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_KEYWORD = re.compile(r"(msgctxt|msgid|msgstr)\s+(.*)")
_HEADER = """\
Language: {language}
MIME-Version: 1.0
Content-Type: text/plain; charset=UTF-8
Content-Transfer-Encoding: 8bit
"""
_ORDER = {"msgctxt": 0, "msgid": 1, "msgstr": 2}


class CatalogueError(FileError):
    """A catalogue that can't be read."""


@dataclass(frozen=True)
class Message:
    """A text of the source that can be translated, and the ``path:line`` where it stands."""

    context: str
    text: str
    location: str = ""

    @property
    def key(self) -> tuple[str, str]:
        """What tells this text from all others."""
        return self.context, self.text


@dataclass(frozen=True)
class Entry:
    """What a catalogue says about one text: the text to show, and its state."""

    text: str
    state: State


@dataclass
class Item:
    """One entry as it stands in the file."""

    context: str = ""
    msgid: str = ""
    msgstr: str = ""
    fuzzy: bool = False
    obsolete: bool = False
    previous: str | None = None
    flags: list[str] = field(default_factory=list)
    comments: list[str] = field(default_factory=list)
    location: str = ""
    line: int = 0
    pieces: list[tuple[int, int]] = field(default_factory=list)

    @property
    def key(self) -> tuple[str, str]:
        """What tells this entry from all others."""
        return self.context, self.msgid

    @property
    def translated(self) -> bool:
        """Whether there is a translation at all."""
        return self.msgstr.strip() != ""

    def line_at(self, offset: int) -> int:
        """Line of the file that holds the character ``offset`` of the translation."""
        line = self.line
        for start, number in self.pieces:
            if start > offset:
                break
            line = number
        return line


class Catalogue:
    """The translations of one page, read from one file."""

    def __init__(self, path: Path, items: list[Item], header: Item | None) -> None:
        self.path = path
        self.items = items
        self.header = header
        self._used = {item.key: item for item in items if not item.obsolete}
        self._places = _alone(self._used.values())

    @classmethod
    def load(cls, path: Path) -> Catalogue:
        """Read a catalogue; a file that is not there is an empty one, a broken one raises `CatalogueError`."""
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            return cls(path, [], None)
        except OSError as error:
            raise CatalogueError(path, 1, f"the catalogue can't be read ({error.strerror}).") from None
        try:
            text = data.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            line = data.count(b"\n", 0, error.start) + 1
            raise CatalogueError(path, line, "the file is not UTF-8; save it as UTF-8.") from None
        items = _Reader(path, text).items
        header = items.pop(0) if items and not items[0].context and not items[0].msgid else None
        seen: dict[tuple[str, str], int] = {}
        for item in items:
            if item.obsolete:
                continue
            if not item.context or not item.msgid:
                what = "msgctxt" if not item.context else "text in msgid"
                raise CatalogueError(path, item.line, f"the entry has no {what}; every entry needs both.")
            first = seen.setdefault(item.key, item.line)
            if first != item.line:
                message = f'this text of "{item.context}" is already translated in line {first}; keep one of the two.'
                raise CatalogueError(path, item.line, message)
        return cls(path, items, header)

    def lookup(self, context: str, msgid: str) -> Entry:
        """Find the translation of a text; whatever is not ``ok`` comes back as the English text itself."""
        item = self.item(context, msgid)
        if item is None or not item.translated:
            return Entry(msgid, "missing")
        if item.msgid != msgid:
            return Entry(msgid, "stale")
        if item.fuzzy:
            return Entry(msgid, "fuzzy")
        return Entry(item.msgstr, "ok")

    def item(self, context: str, msgid: str) -> Item | None:
        """Return the entry of a text as it stands in the file, or the only one at its place, made from another text."""
        return self._used.get((context, msgid)) or self._places.get(context)

    def save(self, language: str = "") -> bool:
        """Write the file, always the same bytes for the same entries; return whether it changed.

        The language is written into the header of a new file; if none is given, it is the name of the file's folder.
        """
        header = self.header
        if header is None:
            header = Item(msgstr=_HEADER.format(language=language or self.path.parent.name))
        data = "\n".join(_block(item) for item in (header, *self.items)).encode()
        if self.path.exists() and self.path.read_bytes() == data:
            return False
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_bytes(data)
        return True

    def __iter__(self) -> Iterator[Item]:
        """Go through the entries in use, in the order of the file."""
        return iter(self._used.values())


def update(path: Path, messages: Sequence[Message], language: str = "") -> bool:
    """Bring a catalogue in line with the texts of its source; return whether the file changed.

    A translation follows its text when a row moves. When the text changed, the translation stays as a *fuzzy* entry
    that also holds the English text it was made from; when the text is gone, it stays as an *obsolete* one (``#~``).
    """
    for key, count in Counter(message.key for message in messages).items():
        if count > 1:
            raise ValueError(f'{path.as_posix()}: the source has one text twice at the place "{key[0]}": {key[1]!r}.')
    catalogue = Catalogue.load(path)
    if not messages and not catalogue.items:
        return False
    found = _match(messages, catalogue.items)
    taken = {id(item) for item in found.values()}
    gone = [item for item in catalogue.items if id(item) not in taken and item.translated]
    items = [_follow(found.get(message.key), message) for message in messages]
    items += [dataclasses.replace(item, obsolete=True, location="") for item in gone]
    return Catalogue(path, items, catalogue.header).save(language)


def _follow(item: Item | None, message: Message) -> Item:
    """Put a translation at the place of a text, as fuzzy if it was made from another text."""
    location = re.sub(r"(:\d+)+$", "", message.location)  # without the line, which every edit above it would change
    if item is None:
        return Item(message.context, message.text, location=location)
    doubt = item.msgid != message.text and item.translated
    # A second change of the English keeps the text that the translation was made from.
    previous = item.previous if not doubt or item.previous is not None else item.msgid
    return dataclasses.replace(
        item,
        context=message.context,
        msgid=message.text,
        location=location,
        fuzzy=item.fuzzy or doubt,
        previous=previous if item.fuzzy or doubt else None,
        obsolete=False,
    )


def _match(messages: Sequence[Message], items: list[Item]) -> dict[tuple[str, str], Item]:
    """Find the entry that belongs to each text: the same text, else the most alike, else what stood at its place."""
    found: dict[tuple[str, str], Item] = {}
    taken: set[int] = set()

    def assign(pairs: Iterable[tuple[Message, Item]]) -> None:
        for message, item in pairs:
            if message.key not in found and id(item) not in taken:
                found[message.key] = item
                taken.add(id(item))

    def left() -> tuple[list[Message], list[Item]]:
        return [m for m in messages if m.key not in found], [i for i in items if id(i) not in taken]

    used_first = sorted(items, key=lambda item: item.obsolete)
    assign((m, i) for m in messages for i in used_first if m.key == i.key)
    assign((m, i) for m in messages for i in used_first if m.text == i.msgid)
    assign(_alike(*left()))
    rest, free = left()
    places = _alone(messages).keys() & _alone(item for item in items if not item.obsolete).keys()
    assign((m, i) for m in rest for i in free if m.context == i.context and i.context in places and not i.obsolete)
    return found


Placed = TypeVar("Placed", Item, Message)


def _alone(entries: Iterable[Placed]) -> dict[str, Placed]:
    """Find the entries whose context no other one shares: it names their place."""
    shared: dict[str, list[Placed]] = {}
    for entry in entries:
        shared.setdefault(entry.context, []).append(entry)
    return {context: found[0] for context, found in shared.items() if len(found) == 1}


def _alike(messages: list[Message], items: list[Item]) -> list[tuple[Message, Item]]:
    """Pair texts that resemble each other, the most alike first; at the same place before elsewhere."""
    pairs = []
    for number, message in enumerate(messages):
        matcher = SequenceMatcher(b=message.text, autojunk=False)
        for item in items:
            matcher.set_seq1(item.msgid)
            if not item.translated or min(matcher.real_quick_ratio(), matcher.quick_ratio()) < SIMILAR:
                continue
            ratio = matcher.ratio()
            if ratio >= SIMILAR:
                pairs.append((-ratio, item.obsolete, item.context != message.context, number, message, item))
    pairs.sort(key=lambda pair: pair[:4])
    return [(message, item) for *_, message, item in pairs]


class _Reader:
    """Reads the text of a file into its entries, the header first; raises `CatalogueError` at the first fault."""

    def __init__(self, path: Path, text: str) -> None:
        self.path = path
        self.items: list[Item] = []
        self.number = 0
        self.begin()
        for self.number, raw in enumerate(text.split("\n"), 1):
            self.read(raw.strip(" \t\r"))
        self.finish()

    def begin(self) -> None:
        self.item = Item()
        self.parts: dict[str, str] = {}
        self.open = ""  # the keyword that a line beginning with a quote continues

    def finish(self) -> None:
        if self.parts:
            if "msgstr" not in self.parts:
                raise self.error("the entry before this line has no msgstr; add one (it may be empty).")
            self.item.context, self.item.msgid = self.parts.get("msgctxt", ""), self.parts["msgid"]
            self.item.msgstr = self.parts["msgstr"]
            self.items.append(self.item)
        elif self.item.comments and self.items:
            self.items[-1].comments += self.item.comments
        self.begin()

    def error(self, message: str) -> CatalogueError:
        return CatalogueError(self.path, self.number, message)

    def read(self, line: str) -> None:
        if line.startswith(("<<<<<<<", "=======", ">>>>>>>")):
            raise self.error("a merge conflict was left here; choose one side and delete the marks.")
        mark = next((mark for mark in ("#~|", "#~", "#|", "#:", "#,", "#.", "#") if line.startswith(mark)), "")
        content = line[len(mark) :].strip(" \t")
        if mark not in ("", "#~") and "msgstr" in self.parts:
            self.finish()
        if not line:
            self.open = ""
        elif mark in ("#", "#."):
            self.item.comments.append(line)
        elif mark == "#,":
            flags = [flag.strip() for flag in content.split(",")]
            self.item.fuzzy = self.item.fuzzy or "fuzzy" in flags
            self.item.flags += [flag for flag in flags if flag and flag not in ("fuzzy", *self.item.flags)]
        elif mark == "#:":
            self.item.location = f"{self.item.location} {content}".strip()
        elif mark in ("#|", "#~|"):
            self.read_previous(content)
        elif mark in ("", "#~"):
            self.read_text(content, obsolete=mark == "#~")

    def read_previous(self, content: str) -> None:
        match = _KEYWORD.fullmatch(content)
        if match:
            self.open, content = f"previous {match[1]}", match[2]
        if not self.open.startswith("previous"):
            raise self.error("this text continues nothing; a msgid has to stand before it.")
        text = self.string(content)
        if self.open == "previous msgid":
            self.item.previous = (self.item.previous or "") + text

    def read_text(self, content: str, *, obsolete: bool) -> None:
        match = _KEYWORD.fullmatch(content)
        if match and "msgstr" in self.parts:
            self.finish()
        if self.parts and self.item.obsolete != obsolete:
            raise self.error('only a part of this entry is marked "#~" (obsolete); mark all or none.')
        if match:
            keyword, content = match[1], match[2]
            if any(_ORDER[keyword] <= _ORDER[earlier] for earlier in self.parts):
                raise self.error(f"{keyword} comes too late; an entry is msgctxt, msgid, msgstr.")
            if keyword == "msgstr" and "msgid" not in self.parts:
                raise self.error("this msgstr has no msgid before it.")
            self.open = keyword
            self.parts[keyword] = ""
            self.item.obsolete = obsolete
            if keyword == "msgid" or not self.item.line:
                self.item.line = self.number
        elif not content.startswith('"'):
            raise self.error(_unknown(content))
        elif self.open not in self.parts:
            raise self.error("this text continues nothing; a msgid or msgstr has to stand before it.")
        text = self.string(content)
        if self.open == "msgstr" and text:
            self.item.pieces.append((len(self.parts["msgstr"]), self.number))
        self.parts[self.open] += text

    def string(self, content: str) -> str:
        if not _STRING.fullmatch(content):
            raise self.error('a text stands between two quotes, with \\" for a quote in it and \\\\ for a backslash.')
        for escape in _ESCAPE.finditer(content):
            if escape[1] not in '"\\ntr':
                raise self.error(f"\\{escape[1]} is no escape here (TeX needs two backslashes: \\\\{escape[1]}).")
        return unescape(content)


def _unknown(content: str) -> str:
    word = content.split(maxsplit=1)[0]
    if word.startswith(("msgid_plural", "msgstr[")):
        return f"{word}: plural forms are not used here; write one entry."
    return f'"{word[:40]}" is not known here; a line begins with #, msgctxt, msgid, msgstr or a quote.'


def _block(item: Item) -> str:
    prefix = "#~ " if item.obsolete else ""
    lines = list(item.comments)
    if item.location:
        lines.append(f"#: {item.location}")
    flags = (["fuzzy"] if item.fuzzy else []) + item.flags
    if flags:
        lines.append("#, " + ", ".join(flags))
    if item.previous is not None:
        lines += _lines("#~| " if item.obsolete else "#| ", "msgid", item.previous)
    if item.context:
        lines += _lines(prefix, "msgctxt", item.context)
    lines += _lines(prefix, "msgid", item.msgid) + _lines(prefix, "msgstr", item.msgstr)
    return "\n".join(lines) + "\n"


def _lines(prefix: str, keyword: str, text: str) -> list[str]:
    # With width 0 Babel breaks a text only where `str.splitlines` does, so each line of it stands on a line of its own.
    return [prefix + line for line in f"{keyword} {normalize(text, width=0)}".split("\n")]
