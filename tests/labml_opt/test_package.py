import inspect
import math
import runpy
import subprocess
import sys
import types
from pathlib import Path

import pytest
import torch
from stepping import parameter

import labml_opt
from labml_opt import (
    AdaBelief,
    Adam,
    AdamFP16,
    AdamWarmup,
    AdamWarmupCosineDecay,
    AdamWarmupCosineDecayFP16,
    AMSGrad,
    GenericAdaptiveOptimizer,
    GradScalerFP16,
    Noam,
    RAdam,
    Sophia,
    WeightDecay,
)

PUBLIC = [
    "GenericAdaptiveOptimizer",
    "WeightDecay",
    "Adam",
    "AMSGrad",
    "AdamWarmup",
    "Noam",
    "AdamWarmupCosineDecay",
    "RAdam",
    "AdaBelief",
    "Sophia",
    "MasterWeights",
    "AdamFP16",
    "AdamWarmupCosineDecayFP16",
    "GradScalerFP16",
]

# name of the argument, what it is without being given, another value
ADAM = [
    ("lr", 1e-3, 0.5),
    ("betas", (0.9, 0.999), (0.5, 0.6)),
    ("eps", 1e-16, 0.25),
    ("weight_decay", WeightDecay(), WeightDecay(0.125)),
    ("optimized_update", True, False),
]
WARMUP = [*ADAM, ("amsgrad", False, True), ("warmup", 0, 7)]
COSINE = [*WARMUP, ("total_steps", 1e10, 77)]
RADAM = [(name, {"eps": 1e-8}.get(name, default), other) for name, default, other in ADAM]
SIGNATURES = {
    Adam: ADAM,
    AMSGrad: [*ADAM, ("amsgrad", True, False)],
    AdamWarmup: WARMUP,
    Noam: [*WARMUP, ("d_model", 512, 64)],
    AdamWarmupCosineDecay: COSINE,
    RAdam: [*RADAM, ("amsgrad", False, True), ("degenerated_to_sgd", True, False)],
    AdaBelief: [
        *ADAM[:4],
        ("amsgrad", False, True),
        ("degenerate_to_sgd", True, False),
        ("rectify", True, False),
    ],
    Sophia: [
        ("lr", 1e-4, 0.5),
        ("betas", (0.965, 0.99), (0.5, 0.6)),
        ("eps", 1e-16, 0.25),
        ("rho", 0.04, 0.5),
        ("weight_decay", WeightDecay(), WeightDecay(0.125)),
    ],
    AdamFP16: ADAM,
    AdamWarmupCosineDecayFP16: COSINE,
}
IN_THE_GROUP = {"degenerate_to_sgd": "degenerated_to_sgd"}
"""AdaBelief's name for what RAdam, and so every group, calls otherwise."""
OPTIONS = ["maximize", "capturable", "unscale_in_step"]


def test_the_public_names_are_in_reading_order():
    assert labml_opt.__all__ == PUBLIC


def test_every_public_object_has_a_docstring():
    assert [name for name in PUBLIC if not (getattr(labml_opt, name).__doc__ or "").strip()] == []


@pytest.mark.parametrize("cls", SIGNATURES, ids=lambda cls: cls.__name__)
def test_positional_arguments_come_in_the_ancestors_order(cls):
    expected = ["params", *(name for name, _, _ in SIGNATURES[cls]), "defaults"]
    positional = [p for p in inspect.signature(cls).parameters.values() if p.kind is p.POSITIONAL_OR_KEYWORD]
    assert [p.name for p in positional] == expected


def test_the_base_class_takes_the_ancestors_arguments():
    names = list(inspect.signature(GenericAdaptiveOptimizer).parameters)
    assert names[:5] == ["params", "defaults", "lr", "betas", "eps"]


@pytest.mark.parametrize(
    ("cls", "number"),
    [(cls, k) for cls, arguments in SIGNATURES.items() for k in range(len(arguments))],
    ids=lambda x: x.__name__ if inspect.isclass(x) else str(x),
)
@pytest.mark.parametrize("how", ["keyword", "position"])
def test_each_argument_arrives_where_it_belongs_and_nowhere_else(cls, number, how):
    arguments = SIGNATURES[cls]
    name, _, value = arguments[number]
    if how == "keyword":
        given = cls([parameter([1.0])], **{name: value})
    else:
        given = cls([parameter([1.0])], *(default for _, default, _ in arguments[:number]), value)
    expected = {key: default for key, default, _ in arguments} | {name: value}
    expected |= expected["weight_decay"].defaults() | dict.fromkeys(OPTIONS, False)
    expected = {IN_THE_GROUP.get(key, key): value for key, value in expected.items()}
    assert {key: given.param_groups[0][key] for key in expected} == expected


@pytest.mark.parametrize("option", OPTIONS)
@pytest.mark.parametrize("cls", SIGNATURES, ids=lambda cls: cls.__name__)
def test_each_option_arrives_where_it_belongs_and_nowhere_else(cls, option):
    group = cls([parameter([1.0])], **{option: True}).param_groups[0]
    assert {key: group[key] for key in OPTIONS} == {key: key == option for key in OPTIONS}


@pytest.mark.parametrize("cls", SIGNATURES, ids=lambda cls: cls.__name__)
def test_only_numbers_and_flags_are_in_the_groups(cls):
    group = cls([parameter([1.0])]).param_groups[0]
    odd = {k: v for k, v in group.items() if k != "params" and not isinstance(v, (bool, int, float, tuple))}
    assert odd == {}


def test_weight_decay_takes_the_ancestors_arguments_in_its_order():
    assert WeightDecay(0.1, False, True) == WeightDecay(weight_decay=0.1, weight_decouple=False, absolute=True)


def test_a_custom_mix_of_the_scaler_keeps_torchs_arguments_in_torchs_order():
    ours = list(inspect.signature(GradScalerFP16).parameters)
    torchs = list(inspect.signature(torch.amp.GradScaler).parameters)
    assert ours[: len(torchs)] == torchs


def test_importing_the_package_brings_neither_the_engine_nor_a_plotting_library():
    code = (
        "import sys, labml_opt; "
        "print([n for n in ('mkdocs_annotate', 'mkdocs', 'matplotlib', 'labml', 'numpy.testing') if n in sys.modules])"
    )
    root = Path(labml_opt.__file__).parents[1]
    said = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True)
    assert said.stdout.strip() == "[]"


@pytest.mark.filterwarnings("ignore:.*found in sys.modules")
@pytest.mark.parametrize(
    "page",
    [
        "optimizer",
        "adam",
        "amsgrad",
        "adam_warmup",
        "noam",
        "adam_warmup_cosine_decay",
        "radam",
        "ada_belief",
        "sophia",
        "adam_fp16",
        "split_master",
    ],
)
def test_running_a_module_draws_the_figures_of_its_page(page, monkeypatch):
    drawn = []
    monkeypatch.setitem(sys.modules, "labml_opt.figures", types.SimpleNamespace(draw=drawn.append))
    runpy.run_module(f"labml_opt.{page}", run_name="__main__")
    assert drawn == [page]


def test_the_optimizers_can_be_shown():
    assert "AdamWarmup (" in repr(AdamWarmup([parameter([1.0])], warmup=3))
    assert not math.isnan(AdamWarmup([parameter([1.0])]).get_last_lr()[0])
