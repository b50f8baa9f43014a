"""Every public name says of what shape and dtype things are, what is raised and from which paper it comes."""

import inspect
import re
from collections.abc import Callable, Iterator

import pytest

import labml_opt
from labml_opt import GenericAdaptiveOptimizer

PUBLIC = {name: getattr(labml_opt, name) for name in labml_opt.__all__}
CLASSES = pytest.mark.parametrize("name", PUBLIC)
# The base class is no paper's; the page's is that of the decay, which has a docstring of its own.
NO_PAPER = {"GenericAdaptiveOptimizer"}


def methods(cls: type) -> Iterator[tuple[str, Callable[..., object]]]:
    """What a class defines itself and a reader may call or override."""
    for name, value in vars(cls).items():
        function = inspect.unwrap(value) if callable(value) else value
        open_to_readers = name[0] != "_" or name in ("__init__", "__call__")
        # The methods of a dataclass that Python writes have no page.
        if inspect.isfunction(function) and open_to_readers and function.__code__.co_filename != "<string>":
            yield name, function


def own_words(cls: type) -> str:
    """The docstrings of a class and of what it defines."""
    return "\n".join([cls.__doc__ or "", *(function.__doc__ or "" for _, function in methods(cls))])


def words(cls: type, seen: frozenset[type] = frozenset()) -> str:
    """These, and those of the classes that they send the reader to."""
    own = own_words(cls)
    names = re.findall(r"those of \[(\w+)\]", own)
    names += ["GenericAdaptiveOptimizer"] if "those of the base class" in own else []
    others = [PUBLIC[name] for name in names if PUBLIC[name] not in seen | {cls}]
    return "\n".join([own, *(words(other, seen | {cls}) for other in others)])


@CLASSES
def test_shapes_and_dtypes_are_said(name: str) -> None:
    text = words(PUBLIC[name])
    assert "shape" in text
    assert re.search(r"FP16|FP32|dtype", text)


@CLASSES
def test_errors_are_said_by_the_class_itself(name: str) -> None:
    assert re.search(r"Raises (`\w+Error`|what \w+ raises|what the optimizer raises)", own_words(PUBLIC[name]))


@CLASSES
def test_the_paper_is_named_by_the_class_itself(name: str) -> None:
    link = r"\[arXiv\s+(\d{4}\.\d{4,5})\]\(https://arxiv\.org/abs/(\d{4}\.\d{4,5})\)"
    papers = re.findall(link, own_words(PUBLIC[name]))
    assert bool(papers) is (name not in NO_PAPER)
    assert all(said == linked for said, linked in papers)


@CLASSES
def test_each_method_has_a_docstring_that_names_its_arguments_and_says_what_it_returns(name: str) -> None:
    for method, function in methods(PUBLIC[name]):
        text = function.__doc__ or ""
        assert text.strip(), f"{name}.{method}"
        signature = inspect.signature(function)
        parameters = [p for p in signature.parameters.values() if p.name != "self"]
        named = [p.name for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
        # "All other arguments are those of [Adam](adam.md)": there they have to be named.
        where = words(PUBLIC[name]) if "other arguments are those of" in text else text
        unnamed = [argument for argument in named if not re.search(rf"`{argument}\b", where)]
        assert not unnamed, f"{name}.{method}: {unnamed}"
        if signature.return_annotation not in ("None", None, inspect.Signature.empty):
            assert re.search(r"\b(Return|Returns|Yield|whether)\b", text), (
                f"{name}.{method} doesn't say what it returns"
            )


def test_the_options_that_every_class_takes_are_explained_once() -> None:
    text = labml_opt.optimizer.Options.__doc__
    keywords = [
        p.name for p in inspect.signature(GenericAdaptiveOptimizer).parameters.values() if p.kind is p.KEYWORD_ONLY
    ]
    assert keywords == list(labml_opt.optimizer.Options.__annotations__)
    assert [name for name in keywords if f"`{name}`" not in text] == []


@pytest.mark.parametrize("name", sorted({cls.__module__ for cls in PUBLIC.values()}))
def test_each_function_of_a_taught_module_names_its_arguments_too(name: str) -> None:
    module = inspect.getmodule(next(cls for cls in PUBLIC.values() if cls.__module__ == name))
    for function_name, function in vars(module).items():
        if inspect.isfunction(function) and function.__module__ == name and function_name[0] != "_":
            named = inspect.signature(function).parameters
            unnamed = [argument for argument in named if not re.search(rf"`{argument}\b", function.__doc__ or "")]
            assert not unnamed, f"{function_name}: {unnamed}"
