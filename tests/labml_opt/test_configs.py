import copy
import importlib
import pickle
import re
import sys

import pytest
import torch
from stepping import feed, parameter
from torch import nn

import labml_opt
from labml_opt import WeightDecay, configs
from labml_opt.configs import HALF_PRECISION, OptimizerConfigs

OURS = ["Adam", "AMSGrad", "AdamWarmup", "Noam", "AdamWarmupCosineDecay", "RAdam", "AdaBelief", "Sophia"]

# The names of labml_nn 0.5.1, and the defaults that are the same.
LABML_NN = {
    "optimizer",
    "weight_decay_obj",
    "weight_decouple",
    "weight_decay",
    "weight_decay_absolute",
    "optimized_adam_update",
    "parameters",
    "learning_rate",
    "betas",
    "eps",
    "momentum",
    "amsgrad",
    "warmup",
    "total_steps",
    "degenerate_to_sgd",
    "rectify",
    "d_model",
    "rho",
}
SAME_DEFAULTS = {
    "weight_decouple": True,
    "weight_decay": 0.0,
    "weight_decay_absolute": False,
    "optimized_adam_update": True,
    "learning_rate": 0.01,
    "momentum": 0.5,
    "warmup": 2_000,
    "total_steps": 10_000_000_000,
    "degenerate_to_sgd": True,
    "rectify": True,
}

# A value for each setting that no class has for its default, and the name under which the group keeps it.
SETTINGS = {
    "learning_rate": ("lr", 0.125),
    "betas": ("betas", (0.5, 0.75)),
    "eps": ("eps", 0.25),
    "optimized_adam_update": ("optimized_update", False),
    "warmup": ("warmup", 7),
    "total_steps": ("total_steps", 77),
    "d_model": ("d_model", 64),
    "degenerate_to_sgd": ("degenerated_to_sgd", False),
    "rectify": ("rectify", False),
    "rho": ("rho", 0.5),
}


def conf(name=None, **settings):
    c = OptimizerConfigs()
    c.parameters = [parameter([1.0])]
    if name is not None:
        c.optimizer = name
    for key, value in settings.items():
        setattr(c, key, value)
    return c


@pytest.mark.parametrize("name", [name + half for name in OURS for half in ("", "FP16")])
def test_every_optimizer_is_there_by_name_and_gets_every_setting_that_it_knows(name):
    given = {key: value for key, (_, value) in SETTINGS.items()}
    c = conf(name, weight_decay=0.5, weight_decouple=False, weight_decay_absolute=True, **given)
    optimizer = c.optimizer
    assert type(optimizer).__name__ == name
    assert isinstance(optimizer, getattr(labml_opt, name.removesuffix("FP16")))
    assert isinstance(optimizer, labml_opt.MasterWeights) is name.endswith("FP16")
    group = optimizer.param_groups[0]
    assert {k: group[k] for k in WeightDecay().defaults()} == WeightDecay(0.5, False, True).defaults()
    known = {key: value for key, value in SETTINGS.values() if key in group}
    assert len(known) >= 3
    assert {key: group[key] for key in known} == known


@pytest.mark.parametrize("name", OURS)
def test_where_nothing_is_said_each_optimizer_has_the_defaults_of_its_class(name):
    by_name = conf(name, d_model=512, learning_rate=1e-3, warmup=0).optimizer
    its_own = getattr(labml_opt, name)([parameter([1.0])], lr=1e-3)
    settings = [{k: v for k, v in o.param_groups[0].items() if k != "params"} for o in (by_name, its_own)]
    assert settings[0] == settings[1]


def test_the_names_and_the_other_defaults_are_labml_nns():
    c = OptimizerConfigs()
    assert set(dir(c)) == LABML_NN
    assert {name: getattr(c, name) for name in SAME_DEFAULTS} == SAME_DEFAULTS


@pytest.mark.parametrize(("name", "meant"), [("Adam", "AMSGrad"), ("AdamFP16", "AMSGradFP16"), ("RAdam", "RAdam")])
def test_amsgrad_turns_the_maximum_on(name, meant):
    optimizer = conf(name, amsgrad=True).optimizer
    assert type(optimizer).__name__ == meant
    assert optimizer.param_groups[0]["amsgrad"] is True


@pytest.mark.parametrize(("name", "meant"), [("AdamW", "AdamWarmup"), ("AdamWFP16", "AdamWarmupFP16")])
def test_the_w_of_labml_nn_stands_for_the_warm_up(name, meant):
    optimizer = conf(name, warmup=7).optimizer
    assert (type(optimizer).__name__, optimizer.param_groups[0]["warmup"]) == (meant, 7)


def test_without_a_name_it_is_sgd():
    optimizer = conf(momentum=0.75, weight_decay=0.125).optimizer
    assert type(optimizer) is torch.optim.SGD
    group = optimizer.param_groups[0]
    assert (group["lr"], group["momentum"], group["weight_decay"]) == (0.01, 0.75, 0.125)


def test_a_decay_may_be_given_as_a_whole():
    group = conf("Adam", weight_decay_obj=WeightDecay(0.25, absolute=True)).optimizer.param_groups[0]
    assert (group["weight_decay"], group["absolute"]) == (0.25, True)


def test_sgd_decays_by_a_decay_that_was_given_as_a_whole():
    assert conf(weight_decay_obj=WeightDecay(0.25)).optimizer.param_groups[0]["weight_decay"] == 0.25


def test_a_name_that_does_not_exist_is_an_error_that_lists_those_that_do():
    with pytest.raises(ValueError, match=r"there is no optimizer 'Adma'; the names are SGD, Adam, .*SophiaFP16"):
        _ = conf("Adma").optimizer


def test_noam_asks_for_the_width_of_the_model():
    with pytest.raises(ValueError, match="Noam needs the width of the model: set d_model"):
        _ = conf("Noam").optimizer


@pytest.mark.parametrize("half", HALF_PRECISION.values(), ids=lambda cls: cls.__name__)
def test_the_half_precision_forms_keep_masters_also_in_a_copy(half):
    param = parameter([1.0], torch.float16)
    optimizer = half([param], lr=1e-4)
    copies = [copy.deepcopy(optimizer), pickle.loads(pickle.dumps(optimizer))]
    for one in (optimizer, *copies):
        q = one.param_groups[0]["params"][0]
        feed(one, q, [0.0, 0.0])
        assert one.state[q]["master"].dtype is torch.float32
        assert type(one) is half


def test_without_labml_one_sentence_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "labml", None)
    monkeypatch.setitem(sys.modules, "labml.configs", None)
    monkeypatch.delitem(sys.modules, "labml_opt.configs")
    with pytest.raises(ImportError) as caught:
        importlib.import_module("labml_opt.configs")
    assert str(caught.value) == "labml_opt.configs needs labml, which isn't installed: pip install labml"


def test_the_code_on_the_page_runs(capsys):
    blocks = re.findall(r"^```python\n(.*?)^```", configs.__doc__, re.M | re.S)
    assert len(blocks) == 2
    names = {"model": nn.Linear(2, 2), "torch": torch}
    exec(blocks[0], names)
    assert type(names["optimizer"]).__name__ == "RAdamFP16"
    assert names["optimizer"].param_groups[0]["lr"] == 3e-4
    exec(blocks[1], names)
    assert type(names["optimizer"]).__name__ == "Noam"
    assert names["optimizer"].param_groups[0]["d_model"] == 512
    capsys.readouterr()  # labml speaks of itself
