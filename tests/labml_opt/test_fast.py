"""
The fast path: the same numbers as the loop, the same state, and the loop wherever it can't be had.

Compiling takes seconds, so one kernel is really compiled here, that of `AdamFP16`. For every class the captured graph
is run without a compiler, which proves that it can be captured whole. What blocks do is shown with the update as it is.
"""

import copy
import ctypes
import functools
import pickle
import time
import warnings
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
import torch._dynamo.exc
from stepping import EVERY_OPTIMIZER, WITH_MASTERS
from torch import nn

from labml_opt import (
    Adam,
    AdamFP16,
    GenericAdaptiveOptimizer,
    GradScalerFP16,
    MasterWeights,
    Sophia,
    _cpu_loops,
    _fast,
    _hoist,
    _kernels,
    _lists,
    _native,
    _pieces,
)

SHAPES = [(7,), (3, 5), (), (300, 250), (33,), (2, 2, 2)]


@pytest.fixture(autouse=True)
def large(monkeypatch):
    """Large parameters are smaller here than they have to be elsewhere, and quickly stepped."""
    monkeypatch.setattr(_fast, "LARGE", 2**16)


@pytest.fixture
def captured(monkeypatch):
    """Run the graphs that are traced as they are, without a compiler."""
    monkeypatch.setattr(_kernels, "lowered", lambda graph, tensors, threads: lambda inputs: graph(*inputs))
    monkeypatch.setattr(_kernels, "_kernels", {})


class PiecesInPython:
    """What `Pieces` does, by other means: tensors are made of the addresses, and the update is called with them."""

    def __init__(self, update, arguments):
        self.update = update
        self.dtypes = [None if one is None else one.dtype for one in arguments]

    def over(self, places, begins, part, held=None):
        tensors = [self.tensor(*pair, begins[-1]) for pair in zip(places, self.dtypes, strict=True)]

        def call():
            before = [one.clone() if isinstance(one, torch.Tensor) and not one.dim() else one for one in tensors]
            for number in range(part.start, part.stop):
                size = begins[number + 1] - begins[number]
                given = []
                for (kind, base, width), one, old, dtype in zip(places, tensors, before, self.dtypes, strict=True):
                    if kind == _pieces.APART:
                        where = ctypes.cast(base, ctypes.POINTER(ctypes.c_void_p))[number - part.start]
                        given.append(self.tensor((_pieces.ROW, where, width), dtype, size))
                    elif kind == _pieces.ROW:
                        given.append(one[begins[number] : begins[number + 1]])
                    else:
                        given.append(one if one is None or number == part.start else old.clone())
                self.update(given)

        return functools.partial(lambda held: call(), held)

    def tensor(self, place, dtype, size):
        kind, base, width = place
        if not base or kind == _pieces.APART:
            return None
        assert width == dtype.itemsize
        memory = (ctypes.c_char * (width * (size if kind == _pieces.ROW else 1))).from_address(base)
        return torch.frombuffer(memory, dtype=dtype).view(-1 if kind == _pieces.ROW else ())


@pytest.fixture(params=["in rows", "in pieces"])
def uncompiled(request, monkeypatch):
    """Run the update as it stands, without tracing it."""
    monkeypatch.setattr(_kernels, "traced", lambda update, arguments: (update, lambda arguments: arguments))
    monkeypatch.setattr(_kernels, "lowered", lambda update, arguments, threads: update)
    monkeypatch.setattr(_kernels, "_kernels", {})
    if request.param == "in pieces":
        monkeypatch.setattr(_kernels, "pieces_of", PiecesInPython)


def make(name, dtype, shapes=SHAPES, **settings):
    generator = torch.Generator().manual_seed(0)
    params = [nn.Parameter(torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)) for shape in shapes]
    return params, EVERY_OPTIMIZER[name](params, **settings)


def gradients(step, params, without=()):
    generator = torch.Generator().manual_seed(step)
    for number, param in enumerate(params):
        grad = torch.randn(param.shape, generator=generator, dtype=torch.float64) * 0.1 ** (step % 3)
        param.grad = None if number in without else grad.to(param.dtype)


def steps(params, optimizer, numbers, missing=lambda step: ()):
    for number in numbers:
        gradients(number, params, missing(number))
        optimizer.step()


def of_state(optimizer):
    state = optimizer.state_dict()["state"]
    return [(key, state[number][key]) for number in sorted(state) for key in sorted(state[number])]


def assert_alike(one, other, tolerance=2e-6):
    """State and weights within the tolerance, measured against the largest value of a tensor."""
    for (key, mine), (same_key, theirs) in zip(of_state(one), of_state(other), strict=True):
        assert key == same_key
        mine, theirs = torch.as_tensor(mine).double(), torch.as_tensor(theirs).double()
        assert (mine - theirs).abs().max() <= tolerance * theirs.abs().max(), key
    for mine, theirs in zip(weights(one), weights(other), strict=True):
        spacing = torch.finfo(mine.dtype).eps
        assert (mine.double() - theirs.double()).abs().max() <= max(tolerance, spacing) * theirs.double().abs().max()


def weights(optimizer):
    return [param.detach() for group in optimizer.param_groups for param in group["params"]]


def compiles(optimizer):
    """Whether there are blocks, and kernels for them."""
    plans = optimizer.__dict__.get("_plans", {}).values()
    kernels = [kernel for plan in plans for kernel in plan.kernels.values()]
    return any(plan.blocks for plan in plans) and bool(kernels) and None not in kernels


def test_a_hundred_compiled_steps_leave_the_moments_of_the_loop_to_the_bit_and_the_same_half_weights():
    (fast_params, fast), (loop_params, loop) = (make("AdamFP16", torch.float16, fast=kind) for kind in (True, False))
    for params, optimizer in ((fast_params, fast), (loop_params, loop)):
        steps(params, optimizer, range(100), lambda step: (1,) if step in (4, 9) else ())
    assert compiles(fast)
    assert_alike(fast, loop)
    for (key, mine), (_, theirs) in zip(of_state(fast), of_state(loop), strict=True):
        if key != "master":
            assert torch.equal(torch.as_tensor(mine), torch.as_tensor(theirs)), key
    assert all(map(torch.equal, fast_params, loop_params))


def test_a_compiled_step_follows_weights_written_behind_autograds_back():
    params, optimizer = make("AdamFP16", torch.float16, fast=True)
    steps(params, optimizer, range(3))
    kept = [value.clone() for value in optimizer.master_params()]
    for param in params:
        param.data.view(-1)[:1].fill_(2.0)
        param.grad = torch.zeros_like(param)
    for state in optimizer.state.values():
        state["exp_avg"].zero_()
    optimizer.step()
    for master, old, param in zip(optimizer.master_params(), kept, params, strict=True):
        assert master.reshape(-1)[0] == 2.0 == param.reshape(-1)[0]
        assert torch.equal(master.reshape(-1)[1:], old.reshape(-1)[1:])


def test_the_pass_takes_numbers_out_of_the_loop_and_leaves_the_rest_as_it_is():
    graph = torch.fx.Graph()
    number, many, listing = graph.placeholder("a"), graph.placeholder("b"), graph.placeholder("c")
    number.meta["val"], many.meta["val"] = torch.zeros(()), torch.zeros(3)
    power = graph.call_function(torch.ops.aten.sqrt.default, (number,))
    power.meta["val"] = torch.zeros(())
    again = graph.call_function(torch.ops.aten.sqrt.default, (power,))
    again.meta["val"] = torch.zeros(())
    product = graph.call_function(torch.ops.aten.mul.Tensor, (many, again))
    product.meta["val"] = torch.zeros(3)
    graph.output((product, listing))
    _hoist.Hoist()(graph)
    assert product.args[1].target is torch.ops.aten.as_strided.default
    assert again.args[0] is power
    assert _hoist.dimensions(listing) is None
    assert _hoist.Hoist().uuid()


@pytest.mark.usefixtures("captured")
@pytest.mark.parametrize("name", EVERY_OPTIMIZER)
def test_every_class_takes_the_steps_of_the_loop(name):
    dtype = torch.float16 if name in WITH_MASTERS else torch.float32
    settings = {"weight_decay": 0.1, "maximize": True}
    (fast_params, fast), (loop_params, loop) = (make(name, dtype, fast=kind, **settings) for kind in (True, False))
    for params, optimizer in ((fast_params, fast), (loop_params, loop)):
        steps(params, optimizer, range(12), lambda step: (1, 3) if step in (0, 7) else ())
    assert compiles(fast)
    assert_alike(fast, loop, 5e-6)


@pytest.mark.usefixtures("uncompiled")
@pytest.mark.parametrize("found", [None, [0.0, 1.0, 0.0, 0.0, 1.0, 0.0]])
@pytest.mark.parametrize("name", ["AdamWarmupCosineDecayFP16", "Adam"])
def test_with_counts_on_the_device_and_a_scaler_the_steps_are_those_of_the_loop(name, found):
    dtype = torch.float16 if name in WITH_MASTERS else torch.bfloat16
    made = [make(name, dtype, fast=kind, capturable=True, unscale_in_step=True) for kind in (True, False)]
    for params, optimizer in made:
        for step in range(6):
            gradients(step, params, (2,) if step == 3 else ())
            if found is not None:
                optimizer.grad_scale, optimizer.found_inf = torch.tensor(8.0), torch.tensor(found[step])
            optimizer.step()
    assert compiles(made[0][1])
    assert_alike(made[0][1], made[1][1], 5e-6)


@pytest.mark.usefixtures("uncompiled")
def test_the_scaler_drives_fast_steps_and_an_overflow_changes_nothing():
    param = nn.Parameter(torch.ones(8, dtype=torch.float16))
    optimizer, scaler = AdamFP16([param], lr=0.25, fast=True, unscale_in_step=True), GradScalerFP16("cpu", 4.0)
    for factor in (1.0, 1.0, float("inf"), 1.0):
        before = param.detach().clone()
        optimizer.zero_grad()
        scaler.scale(param.float().sum() * factor).backward()
        scaler.step(optimizer)
        scaler.update()
        assert torch.equal(before, param) == (factor != 1.0)
    assert optimizer.state[param]["step"] == 3


@pytest.mark.usefixtures("uncompiled")
@pytest.mark.parametrize("first", [True, False])
def test_a_checkpoint_moves_between_the_two_paths_in_mid_run(first):
    params, optimizer = make("AdamFP16", torch.float16, fast=first)
    steps(params, optimizer, range(4))
    other_params, other = make("AdamFP16", torch.float16, fast=not first)
    with torch.no_grad():
        for mine, theirs in zip(other_params, params, strict=True):
            mine.copy_(theirs)
    other.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    assert other.param_groups[0]["fast"] is not first
    for these, that in ((params, optimizer), (other_params, other)):
        steps(these, that, range(4, 9))
    assert_alike(other, optimizer)


@pytest.mark.usefixtures("uncompiled")
@pytest.mark.parametrize("way", [copy.deepcopy, lambda pair: pickle.loads(pickle.dumps(pair))])
def test_a_copy_goes_on_alone(way):
    pair = make("AdamFP16", torch.float16, fast=True)
    steps(*pair, range(3))
    other = way(pair)
    steps(*pair, range(3, 6))
    assert all(state["step"] == 3 for state in other[1].state.values())
    steps(*other, range(3, 6))
    assert_alike(other[1], pair[1], 0)


@pytest.mark.usefixtures("uncompiled")
def test_groups_that_join_late_settings_of_their_own_and_another_dtype():
    made = []
    for kind in (True, False):
        params, optimizer = make("AdamFP16", torch.float16, fast=kind)
        steps(params, optimizer, range(2))
        late = [nn.Parameter(torch.linspace(-1, 1, 9)), nn.Parameter(torch.linspace(-1, 1, 6))]
        optimizer.add_param_group(
            {"params": late, "weight_decay": 0.1, "weight_decouple": False, "lr": torch.tensor(0.1)}
        )
        steps(params + late, optimizer, range(2, 8))
        made.append(optimizer)
    assert_alike(*made)


@pytest.mark.usefixtures("uncompiled")
@pytest.mark.parametrize("check", [True, False])
def test_weights_loaded_or_turned_to_float32_are_followed(check):
    made = []
    for kind in (True, False):
        params, optimizer = make("AdamFP16", torch.float16, fast=kind, check_weights=check)
        steps(params, optimizer, range(3))
        with torch.no_grad():
            for param in params:
                param.add_(1)
        steps(params, optimizer, range(3, 5))
        for param in params:
            param.grad = None
            param.data = param.data.float()
        steps(params, optimizer, range(5, 8))
        made.append(optimizer)
    assert "master" not in made[0].state_dict()["state"][0]
    assert_alike(*made)


@pytest.mark.usefixtures("uncompiled")
def test_layouts_without_gaps_are_taken_whatever_the_gradients_layout():
    made = []
    for kind in (True, False):
        big = nn.Parameter(torch.linspace(-1, 1, 2**16).view(4, 4, 64, 64).to(memory_format=torch.channels_last))
        small = nn.Parameter(torch.linspace(-1, 1, 64).half().view(2, 2, 4, 4).to(memory_format=torch.channels_last))
        optimizer = AdamFP16([big, small], fast=kind)
        for step in range(3):
            big.grad, small.grad = torch.full(big.shape, step + 1.0), torch.full(small.shape, step + 1.0).half()
            optimizer.step()
        made.append(optimizer)
    assert len(made[0].__dict__["_plans"][0].blocks) == 2
    assert_alike(*made)


@pytest.mark.usefixtures("uncompiled")
def test_what_does_not_fit_is_left_to_the_loop_with_one_warning():
    made, base = [], torch.linspace(-1, 1, 30)
    for kind in (True, False):
        params = [
            nn.Parameter(torch.linspace(-1, 1, 12)),
            nn.Parameter(torch.complex(base[:6], base[6:12])),
            nn.Parameter(base.clone().view(5, 6)[:, :3]),
            nn.Parameter(torch.empty(0, 3)),
            nn.Parameter(torch.ones(1)),
        ]
        optimizer = Adam(params, fast=kind)
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            for step in range(4):
                for param in params:
                    param.grad = torch.full_like(param, step + 1.0)
                optimizer.step()
        assert all(one.filename == __file__ for one in said)
        assert [str(one.message)[:48] for one in said] == (
            ["fast=True steps 2 parameter(s) one by one, the f"] if kind else []
        )
        made.append(optimizer)
    for mine, theirs in zip(weights(made[0]), weights(made[1]), strict=True):
        torch.testing.assert_close(mine, theirs)


def test_without_a_compiler_the_loop_runs_and_says_so_once(monkeypatch):
    def compile_(*args, **kwargs):
        raise RuntimeError("no compiler\nand a long story")

    monkeypatch.setattr(_kernels, "_kernels", {})
    monkeypatch.setattr(torch._inductor, "standalone_compile", compile_)
    params, optimizer = make("Adam", torch.float32, fast=True)
    with pytest.warns(
        UserWarning, match="parameter by parameter, with the same results: RuntimeError: no compiler. It"
    ) as said:
        steps(params, optimizer, range(4))
    assert len(said) == 1
    assert said[0].filename == __file__
    loop_params, loop = make("Adam", torch.float32)
    steps(loop_params, loop, range(4))
    assert_alike(optimizer, loop, 0)


def test_a_kernel_that_computes_something_else_is_not_used(monkeypatch):
    monkeypatch.setattr(_kernels, "_kernels", {})
    monkeypatch.setattr(_kernels, "lowered", lambda graph, tensors, threads: lambda inputs: None)
    params, optimizer = make("Adam", torch.float32, fast=True)
    with pytest.warns(UserWarning, match="the compiled kernel gets the weights wrong with this version of torch"):
        steps(params, optimizer, range(3))


@pytest.mark.usefixtures("uncompiled")
def test_a_setting_that_changes_at_every_step_is_left_to_the_loop(monkeypatch):
    monkeypatch.setattr(_fast, "MOST_CHANGES", 2)
    made = []
    for kind in (True, False):
        params, optimizer = make("Adam", torch.float32, fast=kind)
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            for step in range(5):
                optimizer.param_groups[0]["weight_decay"] = 0.1 + step / 100
                steps(params, optimizer, [step])
        assert [str(one.message)[:44] for one in said] == (
            ["a setting of Adam other than lr changes from"] if kind else []
        )
        made.append(optimizer)
    assert_alike(*made)


@pytest.mark.usefixtures("uncompiled")
def test_more_parameters_than_a_block_holds_make_several_and_share_their_scratch(monkeypatch):
    monkeypatch.setattr(_fast, "BLOCK", {"cpu": 40})
    made = [make("AdamFP16", torch.float16, [(30,), (20,), (50,), (5,), (6,)], fast=kind) for kind in (True, False)]
    for params, optimizer in made:
        steps(params, optimizer, range(4))
    assert len(made[0][1].__dict__["_plans"][0].blocks) == 4
    assert_alike(made[0][1], made[1][1])


@pytest.fixture(params=["C++", "Python"])
def asked(request, monkeypatch):
    """Ask lists in both ways."""
    if request.param == "Python":
        monkeypatch.setattr(_lists, "loops", lambda: None)


@pytest.mark.usefixtures("uncompiled", "asked")
def test_gradients_of_any_layout_arrive_and_the_weights_come_back():
    made = []
    for kind in (True, False):
        params, optimizer = make("AdamFP16", torch.float16, [(4, 6), (1,), (5,), (2, 3)], fast=kind)
        for step in range(4):
            gradients(step, params)
            params[0].grad = params[0].grad.t().contiguous().t()
            # The negative of a memory, as autograd makes it of the imaginary part of a conjugate.
            params[1].grad = torch._neg_view(params[1].grad)
            assert params[1].grad.is_neg()
            versions = [param._version for param in params]
            optimizer.step()
            assert all(param._version > version for param, version in zip(params, versions, strict=True))
        made.append(optimizer)
    assert_alike(*made)


def test_where_the_loops_in_cpp_cannot_be_compiled_there_are_none_and_no_pieces(monkeypatch):
    def load(source):
        raise RuntimeError("no compiler")

    _native.loops.cache_clear()
    monkeypatch.setattr(torch._inductor.codecache.CppCodeCache, "load", load)
    try:
        assert _native.loops() is None
        assert _pieces.pieces_of(torch.add, [torch.zeros(2)]) is None
    finally:
        _native.loops.cache_clear()


@pytest.mark.usefixtures("uncompiled")
@pytest.mark.parametrize("capturable", [True, False])
def test_state_put_in_place_of_another_is_the_state(capturable):
    made = []
    for kind in (True, False):
        params, optimizer = make("AdamFP16", torch.float16, fast=kind, capturable=capturable)
        steps(params, optimizer, range(3))
        # As programs do that move an optimizer's state to another device and back.
        state = optimizer.state[params[1]]
        state["exp_avg"] = state["exp_avg"] * 2
        optimizer.state[params[3]]["exp_avg_sq"] = optimizer.state[params[3]]["exp_avg_sq"].clone().add_(1)
        steps(params, optimizer, range(3, 5))
        optimizer.state[params[2]]["step"] += 5
        steps(params, optimizer, range(5, 7))
        optimizer.state[params[0]]["note"] = "from outside"
        del optimizer.state[params[4]]
        steps(params, optimizer, range(7, 9))
        assert optimizer.state[params[2]]["step"] == 14
        made.append(optimizer)
    mine, theirs = (optimizer.state[optimizer.param_groups[0]["params"][0]] for optimizer in made)
    assert mine.pop("note") == theirs.pop("note") == "from outside"
    assert_alike(*made)


@pytest.mark.usefixtures("uncompiled")
def test_weights_given_another_memory_are_found_there():
    made = []
    for kind in (True, False):
        params, optimizer = make("AdamFP16", torch.float16, fast=kind)
        steps(params, optimizer, range(3))
        for param in params:
            param.data = param.data.clone()
        steps(params, optimizer, range(3, 5))
        made.append(optimizer)
    assert_alike(*made)


@pytest.mark.usefixtures("uncompiled")
def test_a_sparse_gradient_is_refused_before_anything_changes():
    params, optimizer = make("AdamFP16", torch.float16, [(4, 3), (5,), (300, 250)], fast=True)
    steps(params, optimizer, range(3))
    for number in (0, 2):
        before = copy.deepcopy(of_state(optimizer))
        gradients(3, params)
        params[number].grad = params[number].grad.to_sparse()
        with pytest.raises(RuntimeError, match=f"parameter {number} of group 0, shape .* has a sparse gradient"):
            optimizer.step()
        for (_, old), (_, now) in zip(before, of_state(optimizer), strict=True):
            assert torch.equal(torch.as_tensor(old), torch.as_tensor(now))


def test_loads_are_told_in_time_and_a_compiler_that_is_built_otherwise_is_left_alone(monkeypatch):
    class Loads:
        tiling_factor = 32

        def _get_vec_load_line(self, var, index, dtype, load_mask=None):
            return f"load({var})"

    monkeypatch.setattr(_cpu_loops.compiler, "CppVecKernel", Loads)
    monkeypatch.delattr(_cpu_loops.compiler, "TilingSelect")
    monkeypatch.delattr(_cpu_loops.compiler, "VECTORIZABLE_DTYPES")
    with _cpu_loops.mended():
        line = Loads()._get_vec_load_line("in_ptr0", 0, torch.float32)
    assert line.count("__builtin_prefetch") == 2
    assert line.endswith("load(in_ptr0)))")
    assert Loads()._get_vec_load_line("in_ptr0", 0, torch.float32) == "load(in_ptr0)"


class Momentum(GenericAdaptiveOptimizer):
    """The optimizer of the page, which keeps no count."""

    gain = 1.0

    def __init__(self, params, lr=0.1, beta=0.9, **options):
        super().__init__(params, {"beta": beta}, lr, **options)

    def init_state(self, state, group, param):
        state["mean"] = torch.zeros_like(param)

    def step_param(self, state, group, grad, param):
        state["mean"].lerp_(grad, 1 - group["beta"])
        param.sub_(group["lr"] * self.gain * state["mean"])


def variant(name, before=None, init=None, **methods):
    """A class of that name that does something before the step of `Momentum`, or something else altogether."""
    if before is not None:

        def step_param(self, state, group, grad, param):
            Momentum.step_param(self, state, group, before(state, grad, param), param)

        methods["step_param"] = step_param
    if init is not None:

        def init_state(self, state, group, param):
            Momentum.init_state(self, state, group, param)
            init(state)

        methods["init_state"] = init_state
    return type(name, (Momentum,), methods)


def anew(state, grad, param):
    state["mean"] = state["mean"] * (1 - 1e-6) + grad * 1e-6
    return grad


def counted(by):
    def before(state, grad, param):
        state["step"] += by
        return grad

    return variant(f"By{by}", before, lambda state: state.update(step=0))


def no_decay_for_vectors(state, grad, param):
    return grad + 0.1 * param if param.dim() > 1 else grad


def for_large_ones(state, grad, param):
    return grad * 2 if param.numel() > 10 else grad


def alpha(self, state, group, grad, param):
    param.sub_(state["mean"].add_(grad), alpha=group["lr"])


REFUSED = {
    "norm": (variant("Norm", lambda s, g, p: g / (1 + g.norm())), "looks at several values"),
    "norm of rows": (
        variant("Rows", lambda s, g, p: g / (1 + g.norm(dim=-1, keepdim=True))),
        "looks at several values",
    ),
    "sum": (variant("Sum", lambda s, g, p: g - g.mean()), "looks at several values"),
    "order": (variant("Order", lambda s, g, p: g.flip(-1)), "looks at several values"),
    "chance": (variant("Chance", lambda s, g, p: g * (1 + 0 * torch.rand_like(g))), "looks at several values"),
    "dim": (variant("Dim", no_decay_for_vectors), "one thing for a vector and another for a matrix"),
    "shape": (variant("Shape", lambda s, g, p: g * p.shape[-1] ** -0.5), "for a matrix"),
    "size": (variant("Size", for_large_ones), "looks at the size"),
    "table": (
        variant("Table", init=lambda s: s.update(table=torch.zeros(3))),
        "isn't a tensor of the parameter's shape",
    ),
    "one": (variant("One", init=lambda s: s.update(mu=torch.ones(1))), "isn't a tensor of the parameter's shape"),
    "new state": (variant("Anew", anew), r"something new into state\['mean'\]"),
    "counts twice": (counted(2), "doesn't count its steps one by one"),
    "never counts": (counted(0), "doesn't count its steps one by one"),
    "alpha": (variant("Alpha", step_param=alpha), r"param\.sub_\(group\['lr'\] \* update\)"),
    "no state": (
        variant("Nothing", init_state=lambda *a: None, step_param=lambda self, s, g, grad, p: p.sub_(g["lr"] * grad)),
        "remembers nothing",
    ),
    "clamped": (
        variant("Clamped", weights_to_update=lambda self, state, group, param: param.clamp_(-0.5, 0.5)),
        "has a weights_to_update of its own",
    ),
}


def trained(made, shapes=((4, 5), (6,), (1,), (70_000,)), **options):
    params = [nn.Parameter(torch.linspace(-1, 1, torch.Size(shape).numel()).reshape(shape)) for shape in shapes]
    optimizer = made(params, **options)
    steps(params, optimizer, range(5))
    return optimizer


@pytest.mark.usefixtures("captured")
@pytest.mark.parametrize("capturable", [True, False])
def test_an_optimizer_of_ones_own_is_made_fast_and_gets_no_count_that_it_doesnt_keep(capturable):
    fast = trained(Momentum, capturable=capturable, fast=True)
    assert compiles(fast)
    assert all(list(state) == ["mean"] for state in fast.state.values())
    assert_alike(fast, trained(Momentum, capturable=capturable))


@pytest.mark.usefixtures("captured")
@pytest.mark.parametrize("what", REFUSED)
def test_a_step_that_a_block_cannot_take_is_left_to_the_loop_and_each_optimizer_says_so(what):
    made, message = REFUSED[what]
    for _ in range(2):
        with pytest.warns(UserWarning, match=message):
            fast = trained(made, fast=True)
        assert not compiles(fast)
    assert_alike(fast, trained(made), 0)


@pytest.mark.usefixtures("uncompiled")
def test_what_an_instance_was_given_counts():
    made = []
    for kind in (True, False):
        params = [nn.Parameter(torch.linspace(-1, 1, 8))]
        optimizers = [Momentum(params, fast=kind), Momentum(params, fast=kind)]
        optimizers[1].gain = 0.5
        for number, optimizer in enumerate(optimizers * 3):
            optimizer.param_groups[0]["beta"] = 0.9 if number < 4 else 0.5
            steps(params, optimizer, [number])
        optimizers[1].gain = 3.0
        steps(params, optimizers[1], range(6, 8))
        made.append(optimizers[1])
    assert compiles(made[0])
    assert_alike(*made)


@pytest.mark.usefixtures("uncompiled")
def test_betas_changed_in_their_list_are_noticed():
    made = []
    for kind in (True, False):
        params, optimizer = make("Adam", torch.float32, fast=kind, betas=[0.9, 0.999])
        steps(params, optimizer, range(3))
        optimizer.param_groups[0]["betas"][0] = 0.5
        steps(params, optimizer, range(3, 6))
        made.append(optimizer)
    assert_alike(*made)


@pytest.mark.usefixtures("uncompiled")
def test_many_optimizers_with_a_setting_of_their_own_are_all_fast(monkeypatch):
    monkeypatch.setattr(_fast, "MOST_CHANGES", 2)
    for number in range(6):
        params, optimizer = make("Adam", torch.float32, [(5,)], fast=True, weight_decay=number / 100)
        steps(params, optimizer, range(2))
        assert compiles(optimizer)


def test_parameters_in_one_memory_are_found():
    base = torch.zeros(20)
    large, inside, beside, across = base[:10], base[2:4], base[10:15], base[14:16]
    assert _fast.sharing([beside, inside, large]) == {id(large), id(inside)}
    assert _fast.sharing([across, beside, large]) == {id(across), id(beside)}


def change_state(dtype):
    def change(params, optimizer):
        state = optimizer.state[params[3]]
        state["exp_avg_sq"] = state["exp_avg_sq"].to(dtype)

    return change


def reset_through_data(params, optimizer):
    for state in optimizer.state.values():
        state["exp_avg"].data = torch.zeros_like(state["exp_avg"])


def another_order(params, optimizer):
    params[3].data = params[3].data.t().contiguous().t()
    params[1].data = params[1].data.t().contiguous().t()


def shared_memory(params, optimizer):
    params[0].data = params[1].data.view(-1)[:7]


def torchs_count(params, optimizer):
    optimizer.state[params[1]]["step"] = torch.tensor(100.0)


def anchored(params, optimizer):
    for param in params:
        optimizer.state[param]["anchor"] = torch.full_like(param, 7, dtype=torch.float32)


def halved(params, optimizer):
    optimizer.param_groups[0]["split_master"] = not optimizer.param_groups[0]["split_master"]


def of_adam(params, optimizer):
    other = Adam([nn.Parameter(param.detach().float()) for param in params])
    steps(other.param_groups[0]["params"], other, range(2))
    optimizer.load_state_dict(other.state_dict())


def turned_half(params, optimizer):
    for param in params:
        param.grad = None
        param.data = param.data.bfloat16()


CHANGES = {
    "state in another dtype": ("Adam", torch.float32, {}, change_state(torch.float64)),
    "moments reset through .data": ("Adam", torch.float32, {}, reset_through_data),
    "another order in memory": ("Adam", torch.float32, {}, another_order),
    "two parameters in one memory": ("AdamFP16", torch.float16, {}, shared_memory),
    "a count as torch keeps it": ("Adam", torch.float32, {}, torchs_count),
    "something more in the state": ("AdamFP16", torch.float16, {}, anchored),
    "masters are to be split": ("AdamFP16", torch.bfloat16, {}, halved),
    "halves are to be whole": ("AdamFP16", torch.bfloat16, {"split_master": True}, halved),
    "a checkpoint without masters": ("AdamFP16", torch.float16, {}, of_adam),
    "a checkpoint without masters, to be split": ("AdamFP16", torch.bfloat16, {"split_master": True}, of_adam),
    "a model turned to half precision": ("AdamFP16", torch.float32, {}, turned_half),
}


@pytest.mark.filterwarnings("ignore:fast=True leaves parameters to the loop whose state isn't:UserWarning")
@pytest.mark.usefixtures("uncompiled")
@pytest.mark.parametrize("what", CHANGES)
def test_what_is_changed_in_mid_run_is_what_the_next_step_finds(what):
    name, dtype, settings, change = CHANGES[what]
    made = []
    for kind in (True, False):
        params, optimizer = make(name, dtype, fast=kind, **settings)
        steps(params, optimizer, range(3))
        change(params, optimizer)
        steps(params, optimizer, range(3, 7))
        made.append(optimizer)
    for mine, theirs in zip(*(weights(optimizer) for optimizer in made), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-5 if dtype == torch.float32 else 1e-2, atol=1e-6)
    for (key, mine), (same_key, theirs) in zip(*map(of_state, made), strict=True):
        assert key == same_key
        if key != "residue":
            torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-6)


@pytest.mark.usefixtures("uncompiled")
def test_state_of_another_make_is_said():
    params, optimizer = make("AdamFP16", torch.float16, fast=True)
    steps(params, optimizer, range(3))
    anchored(params, optimizer)
    with pytest.warns(UserWarning, match="whose state isn't what AdamFP16 makes: .*'anchor': torch.float32"):
        steps(params, optimizer, range(3, 5))


@pytest.mark.usefixtures("captured")
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_torchs_default_dtype_has_no_say(dtype):
    made = []
    for kind in (True, False):
        params, optimizer = make("AdamFP16", torch.float16, fast=kind, capturable=True, unscale_in_step=True)
        torch.set_default_dtype(dtype)
        try:
            for step in range(4):
                gradients(step, params)
                optimizer.grad_scale = torch.tensor(8.0, dtype=torch.float32)
                optimizer.found_inf = torch.tensor(0.0, dtype=torch.float32)
                optimizer.step()
        finally:
            torch.set_default_dtype(torch.float32)
        made.append(optimizer)
    assert compiles(made[0])
    assert_alike(*made)


def test_a_compilation_that_is_interrupted_is_tried_again(monkeypatch):
    def interrupt(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr(_kernels, "_kernels", {})
    with monkeypatch.context() as patch:
        patch.setattr(_kernels, "lowered", interrupt)
        params, optimizer = make("Adam", torch.float32, fast=True)
        with pytest.raises(KeyboardInterrupt):
            steps(params, optimizer, range(1))
    assert not _kernels._kernels


@pytest.mark.usefixtures("uncompiled")
def test_groups_that_are_gone_and_gradients_of_a_skipped_step_are_let_go():
    params, optimizer = make("Adam", torch.float32, [(5,)], fast=True, unscale_in_step=True)
    optimizer.add_param_group({"params": [nn.Parameter(torch.ones(3))]})
    late = optimizer.param_groups[1]["params"]
    steps(params + late, optimizer, range(3))
    gradients(3, params + late)
    optimizer.grad_scale, optimizer.found_inf = torch.tensor(1.0), torch.tensor(1.0)
    optimizer.step()
    assert all(not block.grads for plan in optimizer._plans.values() for block in plan.blocks)
    del optimizer.grad_scale, optimizer.found_inf, optimizer.param_groups[1], optimizer.state[late[0]]
    steps(params, optimizer, range(4, 5))
    assert list(optimizer._plans) == [0]


def test_masters_in_two_halves_are_compiled_and_are_those_of_the_loop():
    made = []
    for kind in (True, False):
        params, optimizer = make("AdamFP16", torch.bfloat16, [*SHAPES, (2**16 + 7,)], fast=kind, split_master=True)
        steps(params, optimizer, range(10), lambda step: (1, 3) if step in (3, 6) else ())
        with torch.no_grad():
            params[2].add_(1)
        steps(params, optimizer, range(10, 14))
        made.append(optimizer)
    assert compiles(made[0])
    assert all("residue" in state and "master" not in state for state in made[0].state.values())
    for mine, theirs in zip(made[0].master_params(), made[1].master_params(), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=2e-6, atol=2e-7)
    mine, theirs = (optimizer.state[optimizer.param_groups[0]["params"][0]]["residue"] for optimizer in made)
    assert torch.equal(mine, theirs)


@pytest.mark.usefixtures("captured")
def test_an_overflow_changes_neither_half_of_a_master():
    params, optimizer = make(
        "AdamFP16", torch.bfloat16, fast=True, split_master=True, capturable=True, unscale_in_step=True
    )
    for number, found in enumerate((0.0, 0.0, 1.0, 0.0)):
        before = [copy.deepcopy(weights(optimizer)), copy.deepcopy(of_state(optimizer))]
        gradients(number, params)
        optimizer.grad_scale, optimizer.found_inf = torch.tensor(8.0), torch.tensor(found)
        optimizer.step()
        now = [weights(optimizer), of_state(optimizer)]
        if number:
            same = [torch.equal(mine, theirs) for mine, theirs in zip(before[0], now[0], strict=True)]
            same += [torch.equal(mine, theirs) for (_, mine), (_, theirs) in zip(before[1], now[1], strict=True)]
            assert all(same) == (found == 1.0)
    assert compiles(optimizer)


@pytest.mark.usefixtures("asked")
def test_what_dictionaries_and_lists_hold_is_told_from_its_like():
    one, other, third = torch.zeros(1), torch.zeros(1), torch.zeros(2)
    assert _lists.same([{"a": one, "b": third}, [other]], [one, third, other])
    for held in ([one, third, one], [one, third], [one, third, other, one], [one, other, third], []):
        assert not _lists.same([{"a": one, "b": third}, [other]], held)
    assert _lists.same([[], {}], [])
    assert list(_lists.addresses([one, third])) == [one.data_ptr(), third.data_ptr()]


def test_without_torchs_own_comparison_tensors_are_looked_at_anew(monkeypatch):
    assert _lists.Likeness([torch.zeros(2)]).has([torch.ones(2)])
    assert not _lists.Likeness([torch.zeros(2)]).has([torch.ones(3)])
    assert not _lists.Likeness([torch.zeros(2)]).has([None])
    monkeypatch.delattr(torch._C._dynamo.guards, "TensorGuards")
    assert not _lists.Likeness([torch.zeros(2)]).has([torch.ones(2)])


@pytest.mark.usefixtures("uncompiled")
def test_a_gradient_of_a_class_of_its_own_is_left_to_the_loop():
    made = []
    for kind in (True, False):
        params, optimizer = make("Adam", torch.float32, [(4,), (3, 5), (70_000,)], fast=kind)
        steps(params, optimizer, range(3))
        gradients(3, params)
        params[1].grad = nn.Parameter(params[1].grad)
        optimizer.step()
        steps(params, optimizer, range(4, 6))
        made.append(optimizer)
    assert_alike(*made)


@pytest.mark.usefixtures("uncompiled")
def test_after_a_step_without_some_gradients_the_next_one_is_whole_again():
    params, optimizer = make("AdamFP16", torch.float16, [(4,), (3, 5)], fast=True, capturable=False)
    steps(params, optimizer, range(5), lambda step: (1,) if step == 3 else ())
    (block,) = optimizer._plans[0].blocks
    assert block.uniform
    assert block.in_order
    # The second has missed a step and goes on alone.
    assert [optimizer.state[param]["step"] for param in params] == [5, 4]
    optimizer._plans[0].has_gradients()
    assert list(block.runs()) == [slice(0, 1), slice(1, 2)]


@pytest.mark.parametrize(
    ("error", "mended"),
    [(RuntimeError("no prefetch"), [True, False]), (torch._dynamo.exc.RestartAnalysis(), [True, True])],
    ids=["mended wrong", "to begin anew"],
)
def test_where_the_compiler_cannot_be_mended_it_is_taken_as_it_is_and_may_begin_anew(error, mended, monkeypatch):
    tries = []
    load = _cpu_loops.compiler.CppVecKernel._get_vec_load_line

    def compile_(graph, tensors, options):
        tries.append(_cpu_loops.compiler.CppVecKernel._get_vec_load_line is not load)
        if len(tries) == 1:
            raise error
        options["inner_compile"](graph, tensors)

    made = type("Made", (), {"current_callable": staticmethod(lambda inputs: inputs)})
    monkeypatch.setattr(torch._inductor, "standalone_compile", compile_)
    monkeypatch.setattr(torch._inductor.compile_fx, "compile_fx_inner", lambda graph, tensors: made)
    assert _kernels.lowered(None, [], 1)([1]) == [1]
    assert tries == mended


@pytest.mark.usefixtures("uncompiled")
def test_sophia_still_says_at_its_first_step_that_nobody_looked_at_the_curvature():
    class SophiaFP16(MasterWeights, Sophia):
        pass

    param = nn.Parameter(torch.ones(4, dtype=torch.float16))
    param.grad = torch.ones_like(param)
    with pytest.warns(UserWarning, match="Hessian is still 0"):
        SophiaFP16([param], fast=True).step()


def test_a_kernel_serves_all_shapes_and_is_compiled_once():
    steps(*make("AdamFP16", torch.float16, fast=True), range(2))
    counted = len(_kernels._kernels)
    assert counted > 0
    for shapes in ([(5,)], [(2, 3)] * 40, [(2**17,), (9,)]):
        params, optimizer = make("AdamFP16", torch.float16, shapes, fast=True)
        steps(params, optimizer, range(3))
        assert compiles(optimizer)
    assert len(_kernels._kernels) == counted


@pytest.mark.usefixtures("uncompiled")
@pytest.mark.parametrize("size", [10, 70_000])
def test_a_gradient_that_weights_have_outgrown_is_an_error_as_in_the_loop(size):
    messages = []
    for kind in (True, False):
        params, optimizer = make("Adam", torch.float32, [(size,)], fast=kind)
        steps(params, optimizer, range(2))
        gradients(2, params)
        params[0].data = torch.ones(2 * size)
        for key in ("exp_avg", "exp_avg_sq"):
            optimizer.state[params[0]][key] = torch.zeros(2 * size)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with pytest.raises(RuntimeError) as raised:
                optimizer.step()
        messages.append(str(raised.value))
    assert messages[0] == messages[1]


@pytest.mark.usefixtures("uncompiled")
def test_negatives_that_are_views_are_told_from_the_memory_behind_them():
    made = []
    for kind in (True, False):
        memory = torch.linspace(-1, 1, 12)
        params = [nn.Parameter(torch._neg_view(memory[:5])), nn.Parameter(memory[5:].clone())]
        optimizer = Adam(params, lr=torch._neg_view(torch.tensor(-1e-2, dtype=torch.float64)), fast=kind)
        for step in range(4):
            gradients(step, params)
            optimizer.step()
            optimizer.state[params[1]]["exp_avg"] = torch._neg_view(-optimizer.state[params[1]]["exp_avg"])
        made.append(optimizer)
    assert_alike(*made)


@pytest.mark.usefixtures("uncompiled")
def test_what_a_scaler_left_is_brought_to_the_weights_device():
    made = []
    for kind in (True, False):
        params, optimizer = make("AdamFP16", torch.float16, fast=kind, unscale_in_step=True)
        for step in range(3):
            gradients(step, params)
            optimizer.grad_scale, optimizer.found_inf = 4.0, torch.tensor([0.0], dtype=torch.float64)
            with torch.device("meta"):
                optimizer.step()
        made.append(optimizer)
    assert_alike(*made)


@pytest.mark.usefixtures("uncompiled")
def test_an_attribute_that_changes_in_place_is_noticed():
    class Scaled(Adam):
        def step_param(self, state, group, grad, param):
            super().step_param(state, group, grad * self.options["factor"], param)

    made = []
    for kind in (True, False):
        params, _ = make("Adam", torch.float32)
        optimizer = Scaled(params, fast=kind)
        optimizer.options = {"factor": 1.0}
        steps(params, optimizer, range(2))
        optimizer.options["factor"] = -5.0
        steps(params, optimizer, range(2, 4))
        made.append(optimizer)
    assert_alike(*made)


@pytest.mark.usefixtures("uncompiled")
@pytest.mark.parametrize("settings", [{"capturable": True}, {"check_weights": False}])
def test_tensors_of_inference_mode_which_have_no_version_are_stepped(settings):
    made = []
    for kind in (True, False):
        with torch.inference_mode():
            params = [nn.Parameter(torch.ones(size).half(), requires_grad=False) for size in (3, 5)]
            optimizer = AdamFP16(params, fast=kind, **settings)
            steps(params, optimizer, range(4))
        made.append(optimizer)
    assert_alike(*made)


@pytest.mark.usefixtures("uncompiled")
@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
def test_what_has_moved_when_a_step_is_broken_off_is_counted(error, monkeypatch):
    params, optimizer = make("Adam", torch.float32, [(70_000,), (80_000,), (90_000,)], fast=True)
    steps(params, optimizer, range(2))
    real, calls = _fast.call_in_place, []

    def call_in_place(*arguments):
        call = real(*arguments)

        def broken_off():
            calls.append(call)
            # An interrupt is raised when the call has returned, any other error before anything has moved.
            if len(calls) != 2 or error is KeyboardInterrupt:
                call()
            if len(calls) == 2:
                raise error

        return broken_off

    monkeypatch.setattr(_fast, "call_in_place", call_in_place)
    before = [param.detach().clone() for param in params]
    gradients(2, params)
    with pytest.raises(error):
        optimizer.step()
    moved = [not torch.equal(param, old) for param, old in zip(params, before, strict=True)]
    assert moved == [True, error is KeyboardInterrupt, False]
    assert [optimizer.state[param]["step"] for param in params] == [2 + has for has in moved]
    monkeypatch.undo()
    steps(params, optimizer, [3])
    assert [optimizer.state[param]["step"] for param in params] == [3 + has for has in moved]


def test_kernels_are_made_one_at_a_time_under_torchs_own_lock(monkeypatch):
    assert _kernels.compile_lock() is torch._dynamo.convert_frame.compile_lock
    made = []

    def slowly(optimizer, group, kind):
        made.append(kind)
        time.sleep(0.1)
        return "it can't be had"

    monkeypatch.setattr(_kernels, "_kernels", {})
    monkeypatch.setattr(_kernels, "made", slowly)
    optimizers = [make("Adam", torch.float32, [(3,)], fast=True) for _ in range(4)]

    def train(pair):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            steps(*pair, range(2))

    with ThreadPoolExecutor() as pool:
        list(pool.map(train, optimizers))
    assert len(made) == 1


def test_where_torch_keeps_its_lock_elsewhere_there_is_one_of_our_own(monkeypatch):
    monkeypatch.delattr(torch._dynamo.convert_frame, "compile_lock")
    lock = _kernels.compile_lock.__wrapped__()
    with lock, lock:
        pass


@pytest.mark.usefixtures("uncompiled")
def test_a_step_inside_of_torch_compile_is_the_loop(monkeypatch):
    made = []
    for kind in (True, False):
        params, optimizer = make("Adam", torch.float32, fast=kind)
        steps(params, optimizer, range(2))
        with monkeypatch.context() as patch:
            patch.setattr(torch.compiler, "is_dynamo_compiling", lambda: True)
            patch.setattr(_fast, "call_in_place", None)
            steps(params, optimizer, range(2, 4))
        steps(params, optimizer, range(4, 6))
        made.append(optimizer)
    assert_alike(*made)
