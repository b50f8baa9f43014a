"""Whole pages: any package becomes pages, the same in every language but for the words."""

from __future__ import annotations

import gzip
import importlib.util
import re
import sysconfig
import time
from collections import Counter
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import pytest

from mkdocs_annotate.catalogue import Catalogue, update
from mkdocs_annotate.equations import EquationError, Katex
from mkdocs_annotate.page import AnnotatedPage, annotate, messages
from mkdocs_annotate.rows import SourceError, read_source

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "labml_opt"
MODULES = sorted(path for path in PACKAGE.glob("*.py") if not path.name.startswith("_") and path.name != "figures.py")
Make = Callable[..., AnnotatedPage]


def everything(page: AnnotatedPage) -> str:
    """All HTML of a page, without the template."""
    head = [page.title_html, page.lede, page.paper, page.rule, page.use, page.dont, page.figure, page.figure_caption]
    head += [part for symbol in page.symbols for part in (symbol.tex, symbol.meaning, symbol.kept)]
    rows = [
        f'<section id="{row.id}">{row.heading}{row.prose}<pre><code>{row.code}</code></pre></section>'
        for row in page.rows
    ]
    return "\n".join([*head, *rows])


class Seen(HTMLParser):
    """What a browser makes of a page: ids, tags, the lines of code, the text."""

    def __init__(self, made: str) -> None:
        super().__init__()
        self.ids: Counter[str] = Counter()
        self.stack: list[str] = []
        self.code: list[tuple[int, str]] = []
        self.in_number = False
        self.feed(made)
        self.close()
        assert not self.stack

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        known = {name: value or "" for name, value in attrs}
        self.ids.update([known["id"]] if "id" in known else [])
        self.in_number = known.get("class") == "ln"
        if known.get("class") == "line":
            self.code.append((int(known["id"][1:]), ""))
        if tag not in ("img", "br"):
            self.stack.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.ids.update([value or "" for name, value in attrs if name == "id"])

    def handle_endtag(self, tag: str) -> None:
        assert self.stack.pop() == tag
        self.in_number = False

    def handle_data(self, data: str) -> None:
        if self.code and not self.in_number and "pre" in self.stack and "section" in self.stack:
            number, text = self.code[-1]
            self.code[-1] = (number, text + data)


def check(page: AnnotatedPage, source: str) -> None:
    """What holds for every page of every source."""
    seen = Seen(everything(page))
    lines = source.split("\n")
    assert [identifier for identifier, count in seen.ids.items() if count > 1] == []
    code = [(number, text) for number, text in seen.code if text]
    assert code == sorted(code)
    for number, text in code:
        assert text.split("\n")[0] == lines[number - 1]
    assert not re.search("[\x00-\x08\x0b\x0e-\x1f\ue000\ue001]|klzzwxh", everything(page))
    assert {item.id for item in page.outline} <= set(seen.ids)
    assert 0 < len(page.description) <= 160


# Any package.

SAMPLE = [
    "abc", "argparse", "ast", "asyncio/base_events", "base64", "calendar", "collections/__init__",
    "concurrent/futures/thread", "configparser", "contextlib", "copy", "csv", "dataclasses", "datetime", "decimal",
    "difflib", "dis", "doctest", "email/message", "enum", "fnmatch", "fractions", "functools", "gzip", "heapq",
    "html/parser", "http/client", "http/server", "importlib/_bootstrap", "inspect", "ipaddress", "json/decoder",
    "logging/__init__", "operator", "os", "pickle", "platform", "pprint", "queue", "random", "re/_parser", "shutil",
    "socket", "statistics", "string", "subprocess", "tarfile", "textwrap", "this", "threading", "timeit",
    "tokenize", "traceback", "types", "typing", "unittest/mock", "urllib/parse", "uuid", "weakref",
    "xml/dom/minidom",
]  # fmt: skip


def sample() -> list[Path]:
    """A fixed sample of the standard library."""
    root = Path(sysconfig.get_paths()["stdlib"])
    return [root / f"{name}.py" for name in SAMPLE]


def optimizers() -> list[Path]:
    spec = importlib.util.find_spec("torch")
    assert spec is not None
    assert spec.origin is not None
    return sorted((Path(spec.origin).parent / "optim").rglob("*.py"))


@pytest.mark.parametrize(("files", "least"), [(optimizers, 15), (sample, 60)], ids=["torch.optim", "standard library"])
def test_any_package_becomes_pages(katex: Katex, files: Callable[[], list[Path]], least: int) -> None:
    # 3 s for torch.optim and 12 s for the sample, on one core that has nothing else to do.
    started = time.perf_counter()
    paths = files()
    assert len(paths) >= least
    for path in paths:
        try:
            page = annotate(
                path, name=path.stem, language="en", catalogue=None, katex=katex, figures_dir=None, label=str
            )
            check(page, read_source(path))
        except (AssertionError, SourceError, EquationError) as error:
            raise AssertionError(f"{path}: {error}") from error
    print(f"{len(paths)} files in {time.perf_counter() - started:.1f} s")


def test_the_engine_becomes_pages_itself(katex: Katex) -> None:
    paths = sorted((ROOT / "mkdocs_annotate").rglob("*.py"))
    assert len(paths) > 15
    for path in paths:
        page = annotate(path, name=path.stem, language="en", catalogue=None, katex=katex, figures_dir=None, label=str)
        check(page, read_source(path))


def test_every_module_of_the_package_becomes_a_page(katex: Katex) -> None:
    assert len(MODULES) >= 6
    for path in MODULES:
        page = taught(path, katex)
        source = read_source(path)
        check(page, source)
        assert page.title != path.stem
        assert page.symbols or "$$" not in source


def taught(path: Path, katex: Katex, language: str = "en", catalogue: Catalogue | None = None) -> AnnotatedPage:
    figures = ROOT / "docs" / "figures"
    return annotate(
        path, name=path.stem, language=language, catalogue=catalogue, katex=katex, figures_dir=figures, label=str
    )


def test_the_page_of_adam_is_small(katex: Katex) -> None:
    made = everything(taught(PACKAGE / "adam.py", katex))
    assert len(gzip.compress(made.encode(), 9)) < 17_000  # the template adds 3 KB, and the bar is 20


def test_two_builds_give_the_same_bytes(katex: Katex) -> None:
    with Katex(ROOT / "node_modules" / "katex") as another:
        for path in MODULES[:2]:
            assert taught(path, katex) == taught(path, another)


# What a page is made of.

SOURCE = r'''
    """# The title with $x$

    What this is, in `code` and $\beta_1$.

    Paper: [A paper](https://x.y/z), 2020

    $$m_t = \beta_1 m_{t-1}$$

    **Use it when** it fits.

    **Don't when** it doesn't.

    ```symbols
    m_t     | m, exp_avg | first moment of $g$ | FP32
    \beta_1 | beta1      | its decay           | number
    ```

    ## Why

    Because of $m_t$.

    ### More
    """

    import math


    class A:
        """The class."""

        def f(self, m):
            """
            The method: $m_{t-1}$.
            """
            # A comment.
            #
            # ## Why
            return math.exp(m)
'''


def test_the_head_of_a_page(page: Make) -> None:
    made = page(SOURCE)
    assert made.title == "The title with x"
    assert made.description == "What this is, in code and β1."
    assert re.sub(r"<span.*</span>", "...", made.title_html) == "The title with ..."
    assert made.paper == '<p>Paper: <a href="https://x.y/z">A paper</a>, 2020</p>'
    assert made.rule.startswith('<span class="katex-display"')
    assert (made.use, made.dont) == ("<p>it fits.</p>", "<p>it doesn't.</p>")
    assert [(symbol.slot, symbol.code, symbol.meaning_text, symbol.kept) for symbol in made.symbols] == [
        (1, "m, exp_avg", "first moment of g", "FP32"),
        (2, "beta1", "its decay", "number"),
    ]


def test_the_rows_of_a_page(page: Make) -> None:
    made = page(SOURCE)
    assert [(row.id, row.kind, row.heading) for row in made.rows] == [
        ("why", "module", "Why"),
        ("module-2", "", ""),
        ("A", "class", "A"),
        ("A.f", "def", "f"),
        ("A.f-2", "", ""),
    ]
    assert '<h3 id="more">More</h3>' in made.rows[0].prose
    assert made.rows[0].code == ""
    assert '<h3 id="why-2">Why</h3>' in made.rows[-1].prose
    assert made.anchors == {"why", "more", "module-2", "A", "A.f", "A.f-2", "why-2"}
    assert [(item.id, item.name, item.is_class) for item in made.outline] == [
        ("why", "Why", True),
        ("A", "A", True),
        ("A.f", "f", False),
    ]


def test_a_docstring_may_begin_with_a_smaller_heading_and_each_heading_has_its_own_anchor(page: Make) -> None:
    source = '"""\n### One\n\ntext\n\n### Two\n\ntext\n"""\n\nx = 1\n'
    made = page(source)
    check(made, source)
    assert [(row.id, row.heading) for row in made.rows] == [("one", "One"), ("module-2", "")]
    assert '<h3 id="two">Two</h3>' in made.rows[0].prose
    assert made.anchors == {"one", "two", "module-2"}


def test_a_heading_does_not_take_the_anchor_of_a_line_of_code(page: Make) -> None:
    source = '"""\n## Lines {#L9}\n\ntext\n"""\n\n# ### And more {#L9}\n# text\nx = 1\n'
    made = page(source)
    check(made, source)
    assert made.anchors == {"L9-2", "L9-3", "module-2"}


def test_symbols_are_marked_on_both_sides(page: Make) -> None:
    made = page(SOURCE)
    method = made.rows[3]
    assert 'class="enclosing sym y1"' in method.prose
    assert '<span class="sym y1">m</span>' in method.code
    assert "sym" not in made.symbols[0].tex


def test_a_module_without_a_docstring_has_its_name_as_title(page: Make) -> None:
    made = page("x = 1\n")
    assert (made.title, made.title_html, made.description, made.lede) == ("page", "page", "page", "")


def test_blank_lines_after_the_docstring_are_shown_once(page: Make) -> None:
    for source in (
        '"""Lede."""\n\nimport os\n',
        '"""Lede.\n\nBody."""\n\n\nclass A: pass\n',
        '"""Lede."""\n\n\n',
        "#!/bin/sh\n\n'''Lede.'''\nx = 1\n",
    ):
        made = page(source)
        check(made, source)
        shown = [int(number) for row in made.rows for number in re.findall(r'id="L(\d+)"', row.code)]
        docstring = [n for n, line in enumerate(source.split("\n"), 1) if "Lede" in line or "Body" in line]
        first = min(docstring)
        assert sorted(shown) == [n for n in range(1, source.count("\n") + 1) if not first <= n <= max(docstring)]


def test_imported_names_of_the_package_lead_to_their_pages(katex: Katex, tmp_path: Path) -> None:
    package = tmp_path / "package"
    (package / "sub").mkdir(parents=True)
    for folder in (package, package / "sub"):
        (folder / "__init__.py").write_text("")
    (package / "base.py").write_text("LIMIT = 1\n\n\nclass Base: pass\n")
    (package / "sub" / "own.py").write_text(
        "import os\nfrom package.base import Base, LIMIT\nfrom ..base import Base as B\n\nclass A(Base, B): LIMIT\n"
    )
    made = annotate(
        package / "sub" / "own.py",
        name="sub/own",
        language="en",
        catalogue=None,
        katex=katex,
        figures_dir=None,
        label=str,
    )
    code = "".join(row.code for row in made.rows)
    assert code.count('<a class="ref" href="../../base/#Base">Base</a>') == 3
    assert code.count('<a class="ref" href="../../base/#Base">B</a>') == 2
    assert ">LIMIT</a>" not in code


def test_a_name_that_its_module_loses_while_the_site_is_served_leads_nowhere_any_more(
    page: Make, tmp_path: Path
) -> None:
    (tmp_path / "base.py").write_text("class Base: pass\n")
    source = "from .base import Base\nx = Base\n"
    assert 'href="../base/#Base"' in page(source).rows[0].code
    (tmp_path / "base.py").write_text("class Other: pass\n")
    assert 'href="../base/' not in page(source).rows[0].code


# Bad input.


def test_wrong_tex_names_file_line_and_column_of_the_source(page: Make, tmp_path: Path) -> None:
    with pytest.raises(EquationError) as caught:
        page("x = 1\n\n\nclass A:\n    def f(self):\n        # one\n        #   two $a + \\foo$\n        return 1\n")
    assert str(caught.value).startswith(f"{(tmp_path / 'page.py').as_posix()}:7:22: KaTeX rejects this equation")


def test_wrong_tex_in_a_docstring_and_in_a_head_is_found_too(page: Make) -> None:
    for source, place in (
        ('"""# T\n\nLede $\\foo$.\n"""\n', (3, 7)),
        ('"""# T\n\n$$\na\n\\foo$$\n"""\n', (5, 1)),
        ('"""\n# T\n\n```symbols\na | b | c\n\\foo | x | $y$\n```\n"""\n', (6, 1)),
        ('"""\n# T\n\n```symbols\na | b | $x \\foo$\n```\n"""\n', (5, 12)),
        ('"""L.\n\n## S $\\foo$\n\ntext\n"""\n', (3, 7)),
        ('"""L.\n\n## S\n\ntext $\\foo$\n"""\n', (5, 7)),
        ("def f():\n    r'''Doc.\n\n      $x\n        \\foo$\n    '''\n", (5, 9)),
    ):
        with pytest.raises(EquationError) as caught:
            page(source)
        assert (caught.value.line, caught.value.column) == place


def test_a_line_that_is_no_symbol_names_its_line(page: Make) -> None:
    with pytest.raises(SourceError, match=r"page\.py:5:1: a symbol is `TeX \| names"):
        page('"""\n# T\n\n```symbols\nm_t, m\n```\n"""\n')


def test_a_source_that_does_not_parse_names_its_line(page: Make) -> None:
    with pytest.raises(SourceError, match=r"page\.py:2:5: Python can't parse this line"):
        page("x = 1\ny = = 2\n")


def test_tex_needs_no_r_in_front_of_the_docstring(page: Make) -> None:
    body = r"* $\alpha$ ($\beta_1$) $\theta_{t-1}$ $\frac{a}{b}$ $\nabla f$ $\rho$ $\vert x$"
    made = page(f'def f():\n    """{body}"""\ndef g():\n    r"""{body}"""\n')
    f, g = made.rows
    assert f.prose == g.prose
    assert r"\beta_1</annotation>" in f.prose
    assert not re.search(r"[\x00-\x09\x0b-\x1f]", f.prose)


# Languages.


def catalogue_of(folder: Path, source: str, translate: Callable[[str], str], name: str = "page") -> Catalogue:
    """Make a catalogue in which every text of a source is translated."""
    path = folder / "ja" / f"{name}.po"
    module = folder / f"{name}.py"
    module.write_text(source, "utf-8")
    update(path, messages(module, name), "ja")
    catalogue = Catalogue.load(path)
    for item in catalogue.items:
        item.msgstr = translate(item.msgid)
    catalogue.save()
    return Catalogue.load(path)


def dedented(source: str) -> str:
    import textwrap

    return textwrap.dedent(source).lstrip("\n")


def test_messages_are_all_texts_in_the_order_of_the_source(tmp_path: Path) -> None:
    path = tmp_path / "page.py"
    path.write_text(dedented(SOURCE), "utf-8")
    found = messages(path, "page")
    assert [message.context for message in found] == [
        "page#title",
        "page#lede",
        "page#paper",
        "page#use",
        "page#dont",
        "page#symbol m_t",
        "page#symbol \\beta_1",
        "page#kept",
        "page:why",
        "page:A",
        "page:A.f",
        "page:A.f-2",
    ]
    assert [message.text for message in found][-2] == "The method: $m_{t-1}$."
    assert found[0].location == f"{path.as_posix()}:1"
    line = path.read_text("utf-8").split("\n").index("        # A comment.") + 1
    assert found[-1].location == f"{path.as_posix()}:{line}"
    assert len({message.key for message in found}) == len(found)


def test_every_text_of_a_page_can_be_translated(page: Make, tmp_path: Path) -> None:
    catalogue = catalogue_of(tmp_path, dedented(SOURCE), lambda text: re.sub(r"(?m)^(#+ |)(?=[A-Zifn])", r"\1訳", text))
    english, japanese = page(SOURCE), page(SOURCE, catalogue=catalogue, language="ja")
    assert (japanese.todo_count, japanese.head_todo) == (0, frozenset())
    assert not any(row.todo for row in japanese.rows)
    for one, other in ((english.title, japanese.title), (english.lede, japanese.lede), (english.use, japanese.use)):
        assert one != other
    for one, other in zip(english.rows, japanese.rows, strict=True):
        assert one.prose == "" or "訳" in other.prose + other.heading
    assert japanese.symbols[0].meaning.startswith("訳")
    assert japanese.symbols[1].kept == "訳number"
    assert japanese.symbols[0].kept == "FP32"


def test_code_anchors_equations_and_links_are_the_same_in_every_language(katex: Katex, tmp_path: Path) -> None:
    def translate(text: str) -> str:
        """Replace the words by Japanese ones, and leave code, equations and targets."""
        pattern = (
            r"(`+.*?`+|\$\$.*?\$\$|\$.*?\$|\]\([^)]*\)|!?\[|<[^>]*>|https?:\S+|^ *[-*] |^ *\d+\. |^#+ |```.*?```"
            r"|\\begin.*?\\end\{\w+\}|[|*:\n-])"
        )
        parts = re.split(pattern, text, flags=re.DOTALL | re.MULTILINE)
        return "".join(part if number % 2 or not part.strip() else "訳" for number, part in enumerate(parts))

    for path in MODULES:
        catalogue = catalogue_of(tmp_path, path.read_text("utf-8"), translate, path.stem)
        english, japanese = taught(path, katex), taught(path, katex, "ja", catalogue)
        assert japanese.todo_count == 0
        assert [row.code for row in english.rows] == [row.code for row in japanese.rows]
        assert [(row.id, row.kind) for row in english.rows] == [(row.id, row.kind) for row in japanese.rows]
        ids = [re.findall(r'<h\d id="([^"]*)"', row.prose) for row in english.rows]
        assert ids == [re.findall(r'<h\d id="([^"]*)"', row.prose) for row in japanese.rows]
        for one, other in zip(english.rows, japanese.rows, strict=True):
            for pattern in (
                r"<annotation[^>]*>(.*?)</annotation>",
                r'href="([^"]*?)(?:\.\w\w\.svg)?"',
                r"<code>(.*?)</code>",
            ):
                assert re.findall(pattern, one.prose, re.DOTALL) == re.findall(pattern, other.prose, re.DOTALL), one.id


def test_a_text_whose_english_changed_is_shown_in_english_and_marked(page: Make, tmp_path: Path) -> None:
    source = dedented(SOURCE)
    catalogue = catalogue_of(tmp_path, source, lambda text: f"訳 {text}" if not text.startswith("#") else text)
    changed = source.replace("The method:", "This method:").replace("it fits.", "it fits well.")
    made = page(changed, catalogue=catalogue, language="ja")
    assert [row.id for row in made.rows if row.todo] == ["A.f"]
    assert made.rows[3].prose.startswith("<p>This method:")
    assert (made.head_todo, made.todo_count) == (frozenset({"use"}), 2)
    assert made.use == "<p>it fits well.</p>"
    assert made.rows[2].prose.startswith("<p>訳")


def test_a_catalogue_gets_the_same_treatment_as_a_source(page: Make, tmp_path: Path) -> None:
    evil = "<script>alert(1)</script> [x](javascript:alert(1)) <img src=x onerror=y>"
    catalogue = catalogue_of(tmp_path, dedented(SOURCE), lambda text: f"{text[: text.startswith('## ') * 7]}{evil}")
    made = everything(page(SOURCE, catalogue=catalogue, language="ja"))
    assert "&lt;script&gt;" in made
    assert "<script" not in made
    assert "<img" not in made
    assert "javascript:" not in re.sub(r"<[^>]*>", lambda tag: tag[0] if "javascript" in tag[0] else "", made)


def test_wrong_tex_in_a_catalogue_names_its_line(page: Make, tmp_path: Path) -> None:
    catalogue = catalogue_of(
        tmp_path, dedented(SOURCE), lambda text: text.replace("$m_{t-1}$", "\\$5\n$m_{t-1} \\foo$")
    )
    with pytest.raises(EquationError) as caught:
        page(SOURCE, catalogue=catalogue, language="ja")
    line = caught.value.line
    assert caught.value.path == (tmp_path / "ja" / "page.po").as_posix()
    assert "\\\\foo" in (tmp_path / "ja" / "page.po").read_text("utf-8").split("\n")[line - 1]
