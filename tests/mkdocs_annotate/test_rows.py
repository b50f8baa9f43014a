"""Rows: the property that holds for every file, and the public reports that are about cutting source into rows."""

from __future__ import annotations

import ast
import gc
import importlib.util
import re
import sys
import sysconfig
import textwrap
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mkdocs_annotate.rows import DIRECTIVES, Row, SourceError, read_rows, read_source

ROOT = Path(__file__).resolve().parents[2]


def rows(source: str) -> list[Row]:
    return read_rows(textwrap.dedent(source).lstrip("\n"), "page.py")


def prose(source: str) -> list[str]:
    return [row.prose for row in rows(source) if row.prose]


def code(source: str) -> str:
    return "\n".join(line for row in rows(source) for line in row.code)


# The property.


def parse(source: str) -> ast.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.parse(source)


def bodies(tree: ast.Module) -> list[ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef]:
    found: list = [tree]
    todo: list[ast.AST] = [tree]
    while todo:
        node = todo.pop()
        for name in ("body", "orelse", "handlers", "finalbody", "cases"):
            below = getattr(node, name, None)
            if isinstance(below, list):
                todo.extend(below)
                found.extend(n for n in below if isinstance(n, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef))
    return found


def docstring_of(node: ast.AST) -> ast.expr | None:
    first = node.body[0] if node.body else None
    is_text = (
        isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str)
    )
    return first.value if is_text else None


def same_syntax(one: object, other: object) -> bool:
    """Equal `ast.dump` of both, without writing the dumps."""
    todo = [(one, other)]
    while todo:
        a, b = todo.pop()
        if a.__class__ is not b.__class__:
            return False
        if isinstance(a, ast.AST):
            for name in a._fields:
                x, y = getattr(a, name, None), getattr(b, name, None)
                if x is y:  # as names, small numbers and `Load()` are, which is most of a tree
                    continue
                if isinstance(x, ast.AST | list):
                    todo.append((x, y))
                elif x.__class__ is not y.__class__ or repr(x) != repr(y):
                    return False
        elif isinstance(a, list):
            if len(a) != len(b):
                return False
            todo.extend(zip(a, b, strict=True))
        elif repr(a) != repr(b):
            return False
    return True


def check_property(source: str, tree: ast.Module) -> None:
    """The code rows joined are the same program, every comment is shown exactly once, and no line twice."""
    made = read_rows(source, "page.py")
    lines = source.split("\n")
    if not lines[-1]:
        lines.pop()
    shown = [number for row in made for number in row.numbers]
    assert shown == sorted(set(shown)), "a line is shown twice, or out of order"
    assert [lines[number - 1] for number in shown] == [line for row in made for line in row.code]
    assert len({row.anchor for row in made}) == len(made), "two rows have the same anchor"
    assert not [row.anchor for row in made if not row.prose and not row.code], "an empty row"

    # The code column as a file of the same length: a docstring that became prose is left out, here and in the tree;
    # `pass` stands in a body that this leaves empty.
    prose_lines = set(range(1, len(lines) + 1)).difference(shown)
    column = [line if number not in prose_lines else "" for number, line in enumerate(lines, 1)]
    documented: set[int] = set()
    for node in bodies(tree):
        docstring = docstring_of(node)
        if docstring and docstring.lineno in prose_lines:
            documented.update(range(docstring.lineno, docstring.end_lineno + 1))
            assert lines[docstring.end_lineno - 1].rstrip().endswith(("'", '"')), "a comment after a docstring is lost"
            node.body.pop(0)
            if not node.body and not isinstance(node, ast.Module):
                node.body.append(ast.Pass())
                column[docstring.lineno - 1] = re.match(r"\s*", lines[docstring.lineno - 1])[0] + "pass"
    assert documented <= prose_lines, "a docstring is cut in two"
    assert same_syntax(parse("\n".join(column)), tree), "the code is another program"

    # Every other line that is not code is a comment and nothing else, and its text is a line of prose of its own.
    texts = iter([line for row in made for line in row.prose.split("\n")])
    for number in sorted(prose_lines - documented):
        line = lines[number - 1].strip()
        assert line.startswith("#"), f"line {number} is not shown: {line}"
        words = re.sub(
            r"(?<=\S)\s+#\s*(noqa|type: ignore|pragma: no|pylint:|fmt: skip|nosec|mypy:|ruff:|pyright:).*", "", line
        )
        words = re.sub(r"\s*\{#[\w.:-]+\}$", "", words).strip("#: \t\f\r")
        assert not words or any(words == text.strip("#: \t\f\r") for text in texts), (
            f"comment {number} is not shown: {line}"
        )


def library() -> list[Path]:
    root = Path(sysconfig.get_paths()["stdlib"])
    return sorted(path for path in root.rglob("*.py") if "site-packages" not in path.parts)


def parsable(path: Path) -> tuple[str, ast.Module] | None:
    """The text of a file that Python parses, and its syntax tree, else None."""
    try:
        source = read_source(path)
        return source, parse(source)
    except (SourceError, SyntaxError, ValueError, RecursionError):
        return None


def torch_optim() -> list[Path]:
    spec = importlib.util.find_spec("torch")
    assert spec is not None
    assert spec.origin is not None
    return sorted((Path(spec.origin).parent / "optim").rglob("*.py"))


@pytest.mark.parametrize("folder", ["labml_opt", "mkdocs_annotate", "torch.optim"])
def test_code_rows_are_the_same_program_in(folder: str) -> None:
    paths = torch_optim() if folder == "torch.optim" else sorted((ROOT / folder).rglob("*.py"))
    assert len(paths) > 5
    for path in paths:
        source = read_source(path)
        check_property(source, parse(source))


def check_library(share: int, shares: int) -> tuple[int, int]:
    """Check every `shares`-th file of the standard library; return how many files and lines."""
    files = lines = 0
    for path in library()[share::shares]:
        file = parsable(path)
        if file is None:
            with pytest.raises(SourceError):
                read_rows(read_source(path), path.as_posix())
            continue
        try:
            check_property(*file)
        except (AssertionError, SourceError) as error:
            raise AssertionError(f"{path}: {error}") from error
        files, lines = files + 1, lines + file[0].count("\n")
    return files, lines


@pytest.fixture
def uncollected() -> Iterator[None]:
    """Syntax trees are large and have no cycles: looking for cycles is 30 % of the time otherwise."""
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("uncollected")
def test_code_rows_are_the_same_program_in_every_fourth_file_of_the_standard_library() -> None:
    # All files are a minute on one core of 2024: `PYTHONPATH=. python tests/mkdocs_annotate/test_rows.py`. Of the ways
    # in which comments and docstrings stand to what is around them, those that ten files have are nearly all here.
    files, lines = check_library(0, 4)
    assert files > 250
    assert lines > 100_000


# Unparsable source.


def error_of(source: str) -> SourceError:
    with pytest.raises(SourceError) as caught:
        rows(source)
    return caught.value


def test_newer_syntax_is_reported_with_its_line_and_the_running_version() -> None:
    newer = "x = 1\n\ndef f[**P](x: T) -> T:\n    return x\n" if sys.version_info < (3, 12) else "x = 1\n\ny = t'{x}'\n"
    if sys.version_info >= (3, 14):
        newer = "x = 1\n\nlazy import y\n"
    error = error_of(newer)
    running = f"{sys.version_info.major}.{sys.version_info.minor}"
    assert (error.path, error.line) == ("page.py", 3)
    assert str(error).startswith("page.py:3:")
    assert f"newer than this Python {running}" in str(error)


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="these are syntax errors before Python 3.12 only")
@pytest.mark.parametrize("line", ["type X = int", "def f[T](x: T) -> T: ...", 'a = f"{d["k"]}"', "class A[T]: ..."])
def test_each_syntax_of_3_12_names_the_version_it_needs(line: str) -> None:
    error = error_of(line + "\n")
    assert error.line == 1
    assert "newer than this Python 3.11; build the site with Python 3.12 or later" in str(error)


def test_a_plain_syntax_error_is_reported_with_line_and_column_and_no_guess_about_versions() -> None:
    error = error_of("x = 1\ny = = 2\n")
    assert (error.line, error.column) == (2, 5)
    assert str(error).startswith("page.py:2:5: ")
    assert "newer" not in str(error)


@pytest.mark.parametrize(
    "source", ["x = (\n", '"""never closed\n', "x = 1\n  y = 2\n", "if x:\n", "x = '\0'\n", "\ud800 = 1\n"]
)
def test_whatever_python_refuses_is_a_source_error(source: str) -> None:
    assert str(error_of(source)).startswith("page.py:")


def test_a_file_in_an_encoding_that_it_does_not_declare_is_a_source_error(tmp_path: Path) -> None:
    path = tmp_path / "latin.py"
    path.write_bytes(b"x = 1\n# caf\xe9\n")
    with pytest.raises(SourceError, match=r"latin\.py:2:1: .*UTF-8"):
        read_source(path)


def test_declared_encodings_byte_order_marks_and_windows_line_ends_are_read(tmp_path: Path) -> None:
    path = tmp_path / "file.py"
    path.write_bytes(b"# -*- coding: latin-1 -*-\n# caf\xe9\nx = 1\n")
    assert [row.prose for row in read_rows(read_source(path), "file.py") if row.prose] == ["caf\u00e9"]
    path.write_bytes(b"\xef\xbb\xbf# One.\r\nx = 1\r\n")
    assert [(row.prose, row.code) for row in read_rows(read_source(path), "file.py")] == [("One.", ("x = 1",))]


# Prose is cut from the source text.


def test_tex_in_a_docstring_without_r_is_what_the_author_typed() -> None:
    body = r"* $\alpha$ ($\beta_1$) $\theta_{t-1}$ $\frac{a}{b}$ $\nabla f$ $\rho$ $\vert x$"
    made = prose(f'def f():\n    """{body}"""\ndef g():\n    r"""{body}"""\n')
    assert made == [body, body]
    assert not re.search(r"[\x00-\x09\x0b-\x1f]", "".join(made))


def test_tex_line_breaks_survive_and_a_joined_line_loses_its_backslash() -> None:
    source = 'def f():\n    """\\\n    One \\\\\n    two.\n    """\n'
    assert prose(source) == ["One \\\\\ntwo."]


def test_every_line_of_prose_knows_its_line_in_the_source() -> None:
    source = '''
        """

        Title
          indented
        """
        #
        # One.
        #
        #   Two.
        x = 1
        '''
    lines = textwrap.dedent(source).lstrip("\n").split("\n")
    for row in rows(source):
        for number, line in enumerate(row.prose.split("\n") if row.prose else []):
            assert line in lines[row.prose_line + number - 1]
    assert [row.prose for row in rows(source)] == ["Title\n  indented", "One.\n\n  Two."]


def test_quotes_and_hashes_inside_strings_are_neither_docstrings_nor_comments() -> None:
    source = '''
        x = """
        # not a comment
        """
        def f():
            """Closes on the text line,
            like this."""
            return "# no" + \'"""\'  # yes
        """ a bare string """
        '''
    assert prose(source) == ["Closes on the text line,\nlike this."]
    assert code(source) == textwrap.dedent(
        '''
        x = """
        # not a comment
        """
        def f():
            return "# no" + \'"""\'  # yes
        """ a bare string """'''
    ).lstrip("\n")


def test_directives_to_tools_stay_in_the_code_column() -> None:
    source = """
        #!/usr/bin/env python
        # -*- coding: utf-8 -*-
        # SPDX-License-Identifier: MIT
        # fmt: off
        import os  # noqa: F401
        # Explain the step. # noqa: E501
        x = 1  # type: ignore[assignment]
        # pragma: no cover
        # %%
        # type: (int) -> str
        """
    assert prose(source) == ["Explain the step."]
    assert "# fmt: off\nimport os  # noqa: F401\nx = 1" in code(source)


def test_a_comment_that_only_speaks_of_a_directive_is_prose() -> None:
    made = prose("# type: of the value, not of the name\n# noqa is a word of linters. Write # noqa: it helps\nx = 1\n")
    assert made == ["type: of the value, not of the name\nnoqa is a word of linters. Write # noqa: it helps"]


def test_the_list_of_directives_can_be_extended() -> None:
    source = "# region one\n# One.\nx = 1\n"
    made = read_rows(source, "page.py", re.compile(DIRECTIVES.pattern + r"|\#\s*region\b", re.VERBOSE))
    assert [row.prose for row in made if row.prose] == ["One."]


def test_a_docstring_stands_beside_its_own_definition_with_its_decorators() -> None:
    source = '''
        class A:
            """Class."""
            value: int = 0
            """A string below an attribute is code."""

            @property
            def size(self):
                """Getter."""
                return 1

            @size.setter
            def size(self, size):
                """Setter."""

            @overload
            def f(self): ...
            @overload
            def f(self, x): ...
            async def f(self, x=0):
                """Outer."""
                def inner():
                    """Inner."""
                    return 2
                return inner
        '''
    found = {
        row.anchor: (row.kind, row.name, row.prose, row.code[0].strip() if row.code else "") for row in rows(source)
    }
    assert found == {
        "A": ("class", "A", "Class.", "class A:"),
        "A.size": ("def", "size", "Getter.", "@property"),
        "A.size.setter": ("def", "size", "Setter.", "@size.setter"),
        "A.f": ("def", "f", "", "@overload"),
        "A.f.2": ("def", "f", "", "@overload"),
        "A.f.3": ("def", "f", "Outer.", "async def f(self, x=0):"),
        "A.f.3.inner": ("def", "inner", "Inner.", "def inner():"),
        "A.f.3-2": ("", "", "", "return inner"),
    }


def test_a_comment_above_a_function_without_a_docstring_is_its_prose() -> None:
    made = rows("# Twice.\n@cache\ndef f(x):\n    return 2 * x\n")
    assert [(row.anchor, row.kind, row.prose, row.numbers) for row in made] == [("f", "def", "Twice.", (2, 3, 4))]


def test_a_comment_above_a_function_with_a_docstring_stands_alone() -> None:
    made = rows('# Helpers.\ndef f(x):\n    """Twice."""\n    return 2 * x\n')
    assert [(row.anchor, row.kind, row.prose) for row in made] == [("module", "", "Helpers."), ("f", "def", "Twice.")]


def test_a_row_never_begins_inside_a_logical_line() -> None:
    source = """
        # One.
        x = [
            # in brackets
            1,
        ] + \\
            [2]
        # Two.
        y = 2
        """
    made = rows(source)
    assert [row.prose for row in made] == ["One.", "Two."]
    assert "    # in brackets" in made[0].code


def test_blank_lines_before_code_belong_to_the_row_before() -> None:
    made = rows('"""Doc."""\n\nimport os\n\n\n# One.\n\nx = 1\n\n\nclass A:\n    pass\n')
    assert [row.numbers for row in made] == [(2,), (3, 4, 5, 7), (8, 9, 10), (11, 12)]
    assert all(row.code[0].strip() for row in made if row.kind != "module")


def test_the_lines_of_a_row_are_those_of_the_file() -> None:
    made = rows('def f():\n    """One\n    two."""\n\n    return 1\n')
    assert [(row.numbers, row.first_line) for row in made] == [((1, 4, 5), 1)]


def test_code_after_a_function_is_not_shown_beside_its_prose() -> None:
    made = rows('def f():\n    """Twice."""\n    return 2\nx = 1\n')
    assert [(row.anchor, row.qualname, row.prose) for row in made] == [("f", "f", "Twice."), ("module", "", "")]


def test_a_comment_after_the_last_statement_belongs_to_the_function_it_is_indented_in() -> None:
    made = rows("def f():\n    return 2\n    # unreachable\n\n# of the module\nx = 1\n")
    assert [(row.qualname, row.prose) for row in made] == [("f", ""), ("f", "unreachable"), ("", "of the module")]


# Anchors.


BEFORE = '''
    class A:
        """Doc."""
        def f(self):
            # One.
            x = 1
            # Two.
            y = 2
        def g(self):
            # Three.
            z = 3
    '''


def test_anchors_do_not_move_when_another_function_is_edited() -> None:
    anchors = {row.prose: row.anchor for row in rows(BEFORE)}
    edited = BEFORE.replace("        def f(self):\n", "        def f(self):\n            # Zero.\n            w = 0\n")
    after = {row.prose: row.anchor for row in rows(edited)}
    assert anchors["Three."] == after["Three."] == "A.g-2"
    assert (anchors["One."], after["One."]) == ("A.f-2", "A.f-3")


def test_an_anchor_written_at_the_end_of_a_comment_stays_for_good() -> None:
    source = BEFORE.replace("# Two.", "# Two. {#second}")
    found = {row.prose: row.anchor for row in rows(source)}
    assert found["Two."] == "second"
    assert {text: anchor for text, anchor in found.items() if text != "Two."} == {
        row.prose: row.anchor for row in rows(BEFORE) if row.prose != "Two."
    }


def test_an_anchor_in_use_is_refused_with_both_lines() -> None:
    error = error_of("# One. {#same}\nx = 1\n\n# Two. {#same}\ny = 2\n")
    assert str(error) == "page.py:4:1: the anchor {#same} is already in use on this page (line 1); choose another name."


@pytest.mark.parametrize("name", ["module", "top", "L12"])
def test_names_that_the_page_needs_itself_are_no_anchors_of_functions(name: str) -> None:
    made = rows(f"import os\n\n\ndef {name}():\n    pass\n")
    assert [row.anchor for row in made] == ["module", f"{name}.2"]


# For all inputs.

PIECES = st.sampled_from(
    [
        "# a comment\n", "#\n", "#: told\n", "    # deeper\n", "# fmt: off\n", "\n", "\n\n", "x = 1\n",
        "x = [\n    # in\n    1,\n]\n", "x = \"# no\"  # yes\n", '"""bare"""\n', "x = \\\n    1\n",
        "if x:\n    # in if\n    y = 1\n# before else\nelse:\n    pass\n", "def f():\n    pass\n",
        'def f():\n    """doc"""\n', 'def f():\n    # first\n    """doc"""\n    # last\n',
        '@a\n# between\n@b\ndef f(\n    x,  # why\n):\n    """doc\n\n    # in doc\n    """\n    return x\n',
        "def f():\n    x = 1\n        # odd\n", "def g():\n    return 1\n    # after it\n  # and less\n",
        'class A:\n    """doc"""\n\n    # of f\n    def f(self): "short"\n\n    x = 1\n    "attribute"\n',
        "class module: pass\n", 'def f(): """doc\n    more"""; x = 1\n', "\x0c\n",
        "async def g():\n\tawait x\n\t# tab\n", "match = 1  # soft\n", "\\\n# after a backslash\n",
    ]
)  # fmt: skip


@given(st.lists(PIECES, max_size=12), st.booleans())
@settings(deadline=None)
def test_the_property_holds_for_every_combination(pieces: list[str], documented: bool) -> None:
    source = ('"""Doc.\n\nMore."""\n' if documented else "") + "".join(pieces)
    check_property(source, parse(source))


@given(st.lists(st.text(alphabet="ab \\$`*_{}<>&-\u3042", max_size=20), min_size=1, max_size=5))
@settings(deadline=None)
def test_prose_of_a_comment_is_its_text_line_by_line(texts: list[str]) -> None:
    source = "".join(f"# {text}\n" for text in texts) + "x = 1\n"
    shown = [line.strip() for row in read_rows(source, "page.py") for line in row.prose.split("\n")]
    assert (
        shown == [""] * (not any(map(str.strip, texts))) + [text.strip() for text in texts][first(texts) : last(texts)]
    )


def first(texts: list[str]) -> int:
    return next((number for number, text in enumerate(texts) if text.strip()), len(texts))


def last(texts: list[str]) -> int:
    return len(texts) - first(texts[::-1])


if __name__ == "__main__":
    gc.disable()
    print("{} files and {} lines are the same programs".format(*check_library(0, 1)))
