"""What the guide for those who come from labml_nn promises: the same names and arguments, and a test for each fault."""

import ast
import importlib
import inspect
import re
from pathlib import Path

import pytest
import torch
from stepping import parameter

import labml_opt
from labml_opt import GradScalerFP16, WeightDecay

ROOT = Path(__file__).parents[2]
GUIDE = ROOT / "docs" / "guides" / "ancestor.md"
REQUIRED = object()

ADAM = {
    "params": REQUIRED,
    "lr": 1e-3,
    "betas": (0.9, 0.999),
    "eps": 1e-16,
    "weight_decay": WeightDecay(),
    "optimized_update": True,
}
END = {"defaults": None}
# module and class under labml_nn.optimizers, and the arguments of labml_nn 0.5.1 in their order, with their defaults
LABML_NN = {
    ("", "GenericAdaptiveOptimizer"): dict.fromkeys(("params", "defaults", "lr", "betas", "eps"), REQUIRED),
    ("", "WeightDecay"): {"weight_decay": 0.0, "weight_decouple": True, "absolute": False},
    ("adam", "Adam"): ADAM | END,
    ("amsgrad", "AMSGrad"): ADAM | {"amsgrad": True} | END,
    ("adam_warmup", "AdamWarmup"): ADAM | {"amsgrad": False, "warmup": 0} | END,
    ("adam_warmup_cosine_decay", "AdamWarmupCosineDecay"): ADAM
    | {"amsgrad": False, "warmup": 0, "total_steps": 1e10}
    | END,
    ("adam_fp16", "AdamFP16"): ADAM | END,
    ("noam", "Noam"): ADAM | {"amsgrad": False, "warmup": 0, "d_model": 512} | END,
    ("radam", "RAdam"): ADAM | {"eps": 1e-8, "amsgrad": False, "degenerated_to_sgd": True} | END,
    ("ada_belief", "AdaBelief"): {key: value for key, value in ADAM.items() if key != "optimized_update"}
    | {"amsgrad": False, "degenerate_to_sgd": True, "rectify": True}
    | END,
    ("sophia", "Sophia"): {
        "params": REQUIRED,
        "lr": 1e-4,
        "betas": (0.9, 0.95),
        "eps": 1e-12,
        "rho": 0.03,
        "weight_decay": WeightDecay(),
    }
    | END,
    ("configs", "OptimizerConfigs"): {},
}
OTHER_DEFAULTS = {"Sophia": {"betas": (0.965, 0.99), "eps": 1e-16, "rho": 0.04}}
METHODS = {
    "GenericAdaptiveOptimizer": {
        "init_state": ("state", "group", "param"),
        "step_param": ("state", "group", "grad", "param"),
        "step": ("closure",),
    },
    "WeightDecay": {"defaults": (), "__call__": ("param", "grad", "group")},
    "Adam": {
        "get_mv": ("state", "group", "grad"),
        "get_lr": ("state", "group"),
        "adam_update": ("state", "group", "param", "m", "v"),
    },
    "RAdam": {"r_adam_update": ("state", "group", "param", "m", "v")},
    "Sophia": {"update_hessian": ("n_tokens_training_batch",)},
}


def ours(module, name):
    """The class after one import was changed: `labml_opt` for `labml_nn.optimizers`."""
    return getattr(importlib.import_module(f"labml_opt.{module}" if module else "labml_opt"), name)


def positional(function):
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [p for p in inspect.signature(function).parameters.values() if p.kind in kinds]


@pytest.mark.parametrize(("module", "name"), LABML_NN, ids=lambda part: part)
def test_every_class_of_labml_nn_takes_the_same_arguments_after_one_changed_import(module, name):
    expected = LABML_NN[module, name]
    found = positional(ours(module, name))
    assert [p.name for p in found] == list(expected)
    defaults = {p.name: p.default for p in found if expected[p.name] is not REQUIRED}
    required = {p.name for p in found if p.default is p.empty}
    given = {key for key, value in expected.items() if value is REQUIRED}
    assert required <= given
    assert defaults == {key: value for key, value in expected.items() if key not in given} | OTHER_DEFAULTS.get(
        name, {}
    )


def test_the_guide_names_every_default_that_is_another():
    text = GUIDE.read_text(encoding="utf-8")
    (line,) = re.findall(r"^\* `Sophia`(.*?)(?=^\* )", text, re.M | re.S)
    assert list(OTHER_DEFAULTS) == ["Sophia"]
    for values in (
        OTHER_DEFAULTS["Sophia"],
        {key: LABML_NN["sophia", "Sophia"][key] for key in ("betas", "eps", "rho")},
    ):
        for key, value in values.items():
            assert f"`{key}={value}`" in line


@pytest.mark.parametrize(("name", "method"), [(name, method) for name in METHODS for method in METHODS[name]])
def test_the_methods_that_others_override_have_the_same_arguments(name, method):
    found = [p.name for p in positional(getattr(getattr(labml_opt, name), method))]
    assert tuple(found[1 : 1 + len(METHODS[name][method])]) == METHODS[name][method]


def test_the_scaler_takes_a_scale_first_and_the_rest_by_name():
    arguments = {"growth_factor": 3.0, "backoff_factor": 0.25, "growth_interval": 7, "enabled": True}
    scaler = GradScalerFP16(8.0, **arguments)
    assert scaler.get_scale() == 8.0
    state = scaler.state_dict()
    assert {key: state[key] for key in arguments if key != "enabled"} == {
        key: value for key, value in arguments.items() if key != "enabled"
    }
    with pytest.raises(TypeError, match="name the arguments that follow a number"):
        GradScalerFP16(8.0, 3.0, 0.25, 7)


def test_a_decay_is_called_as_in_labml_nn():
    param, grad = parameter([2.0]).detach(), torch.tensor([1.0], dtype=torch.float64)
    decay = WeightDecay(0.1)
    assert decay(param, grad, {"lr": 0.5, **decay.defaults()}) is grad
    assert param.item() == pytest.approx(2.0 * (1 - 0.05))


def house_tests():
    """The names of all tests, from their sources."""
    for path in (ROOT / "tests").rglob("test_*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                yield node.name


def rows(guide):
    """The rows of the tables of faults: fault, what is done here, test."""
    found = re.findall(r"^\| (.+) \| (.+) \| `(test_\w+)` \|$", guide.read_text(encoding="utf-8"), re.M)
    assert len(found) > 25
    return found


@pytest.mark.parametrize("language", ["", ".ja"])
def test_the_guide_names_tests_that_exist(language):
    named = [test for _, _, test in rows(GUIDE.with_suffix(f"{language}.md"))]
    assert set(named) <= set(house_tests())
    assert len(set(named)) == len(named)
    assert named == [test for _, _, test in rows(GUIDE)]
