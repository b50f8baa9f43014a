"""Symbols: what is found in an equation and in code, and what is left alone."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mkdocs_annotate.equations import Katex, TexError
from mkdocs_annotate.symbols import SymbolsError, read_symbols, slots_of, tag_tex

BLOCK = r"""
m_t         | m, state['exp_avg'] | first moment | FP32 | y1
\hat m_t    | m_hat               | corrected    |      | y2
\theta^{16} | param               | half weights | FP16 | y4
\theta^{32} | master              | the masters  | FP32 | y5
\beta_1     | beta1               | its decay    |      | y6
S           | scale               | loss scale   |      | y7
\tilde v    |                     | largest      |      | y8
"""
SYMBOLS = read_symbols(BLOCK)


def marked(tex: str) -> list[tuple[str, str]]:
    """List what is marked in an equation, with its slot."""
    return [
        (slot, inner)
        for slot, inner in re.findall(r"\\htmlClass\{sym (y\d)\}\{((?:[^{}]|\{[^{}]*\})*)\}", tag_tex(tex, SYMBOLS))
    ]


def test_a_block_of_symbols_gives_names_meaning_and_slots() -> None:
    first, *_, last = SYMBOLS
    assert (first.tex, first.names, first.meaning, first.kept, first.slot) == (
        "m_t",
        ("m", "exp_avg"),
        "first moment",
        "FP32",
        1,
    )
    assert first.code == "m, state['exp_avg']"
    assert (last.names, last.code) == ((), "")


def test_slots_that_nobody_asks_for_are_given_in_order() -> None:
    block = "\n".join(f"x_{n} | x{n} | meaning | {'| y2' if n == 3 else ''}" for n in range(10))
    assert [symbol.slot for symbol in read_symbols(block)] == [1, 3, 4, 2, 5, 6, 7, 8, 0, 0]


def test_symbols_may_share_a_slot() -> None:
    assert [symbol.slot for symbol in read_symbols("a | a | one | | y7\nb | b | two | | y7\nc | c | three")] == [
        7,
        7,
        1,
    ]


@pytest.mark.parametrize(
    "line", ["m_t", "m_t | m", "| m | meaning", "m_t | m | meaning | FP32 | y9", "a | b | c | d | y1 | f"]
)
def test_a_line_that_is_no_symbol_is_refused_with_its_number(line: str) -> None:
    with pytest.raises(SymbolsError, match=r"^a symbol is `TeX") as caught:
        read_symbols(f"a | a | fine\n{line}")
    assert caught.value.line == 1


def test_a_symbol_listed_twice_is_refused() -> None:
    with pytest.raises(SymbolsError, match="the symbol `a` is listed twice"):
        read_symbols("a | a | one\na | b | two")


@pytest.mark.parametrize(
    ("tex", "found"),
    [
        (
            r"m_t = \beta_1 m_{t-1} + (1 - \beta_1) g_t",
            [("y1", "m_t"), ("y6", r"\beta_1"), ("y1", "m_{t-1}"), ("y6", r"\beta_1")],
        ),
        (r"\hat m_t = \frac{m_t}{1 - \beta_1^t}", [("y2", r"\hat m_t"), ("y1", "m_t"), ("y6", r"\beta_1^t")]),
        (r"\hat{m}_t, \hat{m}_{t-1}", [("y2", r"\hat{m}_t"), ("y2", r"\hat{m}_{t-1}")]),
        (
            r"\theta^{32}_{t-1} \theta_t^{16} \theta^{64} \theta_t",
            [("y5", r"\theta^{32}_{t-1}"), ("y4", r"\theta_t^{16}")],
        ),
        ("m, m_0, m_{t+1}, m_i", [("y1", "m"), ("y1", "m_0"), ("y1", "m_{t+1}"), ("y1", "m_i")]),
        (r"m_{max}, \beta_2, \hat S, \bar m_t, \mathcal{S}", []),
        (r"\max(S), \text{S and m}, \mathrm{fp32}, \operatorname*{argmS}", [("y7", "S")]),
        (r"x^S \frac1S \sqrt S \frac S m", [("y7", "S"), ("y7", "S"), ("y7", "S"), ("y7", "S"), ("y1", "m")]),
        (r"\frac+S \binom \, m", [("y7", "S"), ("y1", "m")]),
        (r"a \\[2em] b \kern1em c \hspace{1em} \begin{array}{ccS}S\end{array}", [("y7", "S")]),
        (r"\tilde v_t \tilde{v}", [("y8", r"\tilde v_t"), ("y8", r"\tilde{v}")]),
        ("a % S and m\n S", [("y7", "S")]),
    ],
)
def test_symbols_in_equations(tex: str, found: list[tuple[str, str]]) -> None:
    assert marked(tex) == found


def test_marking_changes_nothing_but_the_marks() -> None:
    tex = r"\theta_t^{32} = \frac{m_t}{\sqrt{\hat v_t} + \epsilon}^S"
    without = re.sub(r"\\htmlClass\{sym y\d\}", "", tag_tex(tex, SYMBOLS))
    assert without.replace("{", "").replace("}", "") == tex.replace("{", "").replace("}", "")


def test_names_in_code_have_the_slot_of_their_symbol() -> None:
    assert slots_of(SYMBOLS) == {"m": 1, "exp_avg": 1, "m_hat": 2, "param": 4, "master": 5, "beta1": 6, "scale": 7}


PARTS = [
    "m_t", "m", r"\hat m_t", r"\hat{m}_{t-1}", r"\theta^{32}_t", r"\beta_1^t", "S", "_t", "^2", "^S", "{", "}", "+",
    "=", ",", " ", "(", ")", r"\frac", r"\sqrt", r"\left(", r"\right)", r"\\", r"\text{m S}", r"\mathrm{m}", "&",
    "1", "'", r"\sum_{i=1}^t", r"\,", r"\max",
]  # fmt: skip


@given(st.lists(st.sampled_from(PARTS), max_size=12))
@example(["\\frac", "+", "m_t"])
@example(["\\frac", "\\\\", "m_t"])
@settings(deadline=None, max_examples=150)
def test_whatever_katex_sets_it_sets_with_the_symbols_marked(katex: Katex, parts: list[str]) -> None:
    tex = " ".join(parts)
    try:
        katex.render(tex, True)
    except TexError:
        return
    katex._set(tag_tex(tex, SYMBOLS), True)  # raises TexError if a mark does harm
