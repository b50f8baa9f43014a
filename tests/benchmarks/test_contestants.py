"""What is timed does what it says: steps that move the weights, passes of an iteration, bytes that are really there."""

import gc
import importlib.util

import pytest
import torch

from benchmarks import agreement, memory
from benchmarks.contestants import CONTESTANTS, Iterating, MissingError, Stepping, Streaming, make, why_missing

COMPILED = ("torchao", "ours-")
"""What is compiled would take longer than all other tests together, and ours has tests of its own."""
HERE = [key for key in CONTESTANTS if not key.startswith(COMPILED) and not why_missing(key)]


@pytest.mark.parametrize("key", HERE)
def test_a_step_moves_every_weight_that_is_large_enough_to_show_it(key):
    stepping = Stepping(key, 40, 4)
    before = [param.detach().clone() for param in stepping.params]
    for _ in range(10):
        stepping.prepare()
        stepping.run()
    moved = torch.cat([(a != b).flatten() for a, b in zip(before, stepping.params, strict=True)])
    assert moved.float().mean() > 0.9
    # With state in FP16 an epsilon of 1e-8 is 0, and 0/0 is what becomes of small gradients.
    if CONTESTANTS[key].masters or not key.endswith("/float16"):
        assert all(torch.isfinite(param).all() for param in stepping.params)


@pytest.mark.parametrize(("unscale", "clip"), [(True, True), (False, False)])
@pytest.mark.parametrize("key", ["torch-fused/float32", "ours/float16", "ours/bfloat16"])
def test_an_iteration_gives_the_weights_of_bare_steps(key, unscale, clip):
    bare, iterating = Stepping(key, 40, 4), Iterating(key, 40, 4, unscale=unscale, clip=clip)
    for _ in range(5):
        for timed in (bare, iterating):
            timed.prepare()
            timed.run()
    for a, b in zip(bare.params, iterating.params, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-6, atol=0)


def test_the_option_unscale_in_step_is_set_only_where_nothing_else_unscales():
    for unscale in (True, False):
        (group,) = Iterating("ours/float16", 40, 4, unscale=unscale, clip=False).optimizer.param_groups
        assert group["unscale_in_step"] is not unscale


def test_the_stream_adds():
    stream = Streaming(40, 4)
    expected = [a + b for a, b in zip(stream.a, stream.b, strict=True)]
    stream.run()
    assert all(map(torch.equal, stream.a, expected))


def test_all_contestants_begin_at_the_same_weights_and_gradients():
    a, b = Stepping("torch-loop/float32", 40, 4), Stepping("ours/float16", 40, 4)
    assert all(torch.equal(x.half(), y) for x, y in zip(a.params, b.params, strict=True))
    assert all(torch.equal(x.half(), y) for x, y in zip(a.grads, b.grads, strict=True))
    assert not {x.data_ptr() for x in a.params} & {y.data_ptr() for y in Stepping("torch-loop/float32", 40, 4).params}


def test_a_package_that_is_not_there_is_a_sentence(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingError, match=r"optimi\.Adam: the package optimi is not installed"):
        make({"key": "optimi/float32"}, 40, 4)


def test_values_that_cannot_be_spread_evenly_are_refused():
    with pytest.raises(ValueError, match="1001 values can't be spread evenly over 4 tensors"):
        Stepping("ours/float32", 1001, 4)


@pytest.fixture
def alone():
    """What other tests have left to this process is not looked at: it may go at any moment, and looking takes long."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.mark.parametrize(
    ("key", "unscale", "expected"),
    [
        ("ours/float16", True, (12, 14)),
        ("torch-fused/float32", True, (8, 8)),
    ],
)
@pytest.mark.usefixtures("alone")
def test_the_bytes_counted_are_those_of_masters_moments_and_fp32_gradients(key, unscale, expected):
    found = memory.bytes_per_value(key, 100_000, 4, unscale)
    assert (found["at_rest"], found["after_unscale"]) == pytest.approx(expected, abs=0.01)


@pytest.mark.usefixtures("alone")
def test_a_buffer_outside_the_state_is_counted():
    before = memory.held()
    hidden = {"buffer": [torch.zeros(1000), torch.zeros(10)]}
    same = hidden["buffer"][0].view(10, 100)
    assert memory.held() - before == 4040
    del hidden, same
    assert memory.held() == before


def test_every_optimizer_of_the_package_is_compared_with_itself():
    names = set(agreement.classes())
    assert {"Adam/float32", "Sophia/float32", "AdamFP16/float16", "SophiaFP16/bfloat16"} <= names
    assert not any("MasterWeights" in name or "Generic" in name for name in names)
    assert len(names) == 3 * sum(name.endswith("/float32") for name in names)


@pytest.mark.parametrize(
    "name", ["Adam/float32", "AdaBelief/float32", "SophiaFP16/float16", "AdamWarmupCosineDecayFP16/bfloat16"]
)
def test_two_runs_of_the_same_path_agree_to_the_bit(name, monkeypatch):
    monkeypatch.setattr(agreement, "FAST", {})
    monkeypatch.setattr(agreement, "SIZES", ((5, 3), (1,)))
    found = agreement.differences(name, steps=12)
    assert (found["state"], found["unequal"], found["params"], found["values"]) == (0.0, 0.0, 0.0, 32.0)


def test_a_difference_is_found(monkeypatch):
    monkeypatch.setattr(agreement, "FAST", {"betas": (0.9, 0.99)})
    monkeypatch.setattr(agreement, "SIZES", ((50, 3), (1,)))
    found = agreement.differences("AdamFP16/float16", steps=12)
    assert found["state"] > 1e-3
    assert found["unequal"] > found["numbers"] / 10
    assert found["params"] > 10
