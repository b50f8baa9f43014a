"""The checks that PyTorch runs on its own optimizers, written for those of this package.

They are the tests of `TestOptimRenewed` in PyTorch's `test/test_optim.py`, and what its other files ask of every
optimizer. `TORCHS_CHECKS` says by name which of ours stands for which of theirs.
"""

import copy
import io
import pickle
import types
import weakref

import hypothesis
import pytest
import torch
from optimizer_infos import INFOS, base_of, dtype_of, has_masters, settings_of
from torch import nn
from torch.nn import Parameter
from torch.optim.lr_scheduler import ReduceLROnPlateau
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
from torch.utils._python_dispatch import TorchDispatchMode
from torchs_database import OptimizerErrorEnum, OptimizerInfo

import labml_opt
from labml_opt import AdaBelief, GenericAdaptiveOptimizer, MasterWeights, Sophia

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*master copy", "ignore:.*Hessian is still 0"),
    # Some groups of these tests are stepped by two optimizers, and a scheduler patches the `step` of each.
    pytest.mark.filterwarnings("ignore:.*lr_scheduler.step"),
]

every_class = pytest.mark.parametrize("info", INFOS, ids=lambda info: info.name)

TORCHS_CHECKS: dict[str, tuple[str, ...] | str] = {
    "test_optim_infos_do_not_specify_global_cliquey_kwargs": ("test_every_class_is_described_and_with_masters",),
    "test_errors": ("test_what_cannot_work_is_refused_in_words",),
    "test_forloop_goes_right_direction": ("test_steps_go_in_the_right_direction_with_and_without_a_scheduler",),
    "test_forloop_goes_right_direction_multigpu": ("test_on_two_devices_each_parameter_steps_as_on_its_own",),
    "test_param_group_with_lrscheduler_goes_right_direction": (
        "test_groups_under_a_scheduler_go_in_the_right_direction",
    ),
    "test_tensor_lr": ("test_a_rate_in_a_tensor_takes_the_steps_of_a_number",),
    "test_rosenbrock_sparse": (
        "test_two_coordinates_in_turn_come_closer_to_the_valley_of_rosenbrock",
        "test_a_sparse_gradient_is_refused_and_nothing_has_moved",
    ),
    "test_complex": ("test_complex_parameters_are_two_real_ones_beside_a_real_one",),
    "test_complex_2d": ("test_a_complex_parameter_equals_its_real_and_its_imaginary_part_apart",),
    # Theirs compares `foreach` with the loop. The second way to carry out a step is `capturable` here.
    "test_foreach_matches_forloop": ("test_capturable_steps_match_ordinary_ones_while_a_layer_is_frozen",),
    "test_mixed_device_dtype": (
        "test_parameters_of_all_dtypes_in_one_group_step_as_each_alone",
        "test_on_two_devices_each_parameter_steps_as_on_its_own",
    ),
    "test_set_default_dtype_works_with_foreach": ("test_the_default_dtype_has_no_say_in_state_or_steps",),
    "test_foreach_large_tensor": "needs 72 GB of GPU memory; no index is computed here, torch's kernels do all of it",
    "test_peak_memory_foreach": ("test_the_memory_a_step_needs_does_not_grow_with_the_number_of_parameters",),
    # Theirs compares `fused` with the loop. What `fused` has beside its speed is that the step unscales.
    "test_fused_matches_forloop": ("test_a_step_that_unscales_itself_matches_one_that_need_not",),
    "test_fused_error_on_params_on_meta": ("test_parameters_without_values_are_refused_until_they_have_some",),
    "test_fused_large_tensor": "as test_foreach_large_tensor; 64 GB",
    "test_fused_does_not_step_if_foundinf": ("test_an_infinity_found_by_the_scaler_stops_the_step",),
    "test_cpu_load_state_dict": ("test_a_checkpoint_switched_to_capturable_by_hand_is_loaded",),
    "test_param_groups_weight_decay": ("test_a_group_without_decay_beside_one_with_decay",),
    "test_param_groups_lr": ("test_a_group_whose_rate_is_almost_0_stands_still",),
    "test_step_is_noop_when_params_have_no_grad": ("test_a_step_without_gradients_changes_nothing",),
    "test_step_is_noop_for_zero_grads": ("test_gradients_of_zero_move_nothing",),
    "test_optimizer_can_be_printed": ("test_every_optimizer_can_be_printed",),
    "test_state_dict_deterministic": ("test_a_loaded_optimizer_steps_beside_the_original",),
    "test_can_load_older_state_dict": ("test_a_checkpoint_from_before_the_options_is_loaded",),
    "test_can_load_from_to_named_state_dict": ("test_names_of_parameters_survive_loading_whoever_has_them",),
    "test_save_load_equality_with_weights_only": ("test_a_checkpoint_read_with_weights_only_is_the_one_written",),
    "test_load_nontensor_step": ("test_a_step_count_is_loaded_as_a_number_too",),
    "test_state_dict_with_cuda_params": ("test_a_checkpoint_of_the_cpu_goes_on_on_the_gpu",),
    "test_state_dict_pre_hook": ("test_hooks_before_and_after_saving_are_called",),
    "test_state_dict_post_hook": ("test_hooks_before_and_after_saving_are_called",),
    "test_state_dict_pre_post_hook": ("test_hooks_before_and_after_saving_are_called",),
    "test_load_state_dict_pre_hook_and_prepend": ("test_hooks_before_loading_are_called_in_their_order",),
    "test_load_state_dict_post_hook": ("test_hooks_after_loading_see_what_was_loaded",),
    "test_load_state_dict_pre_post_hook": ("test_hooks_after_loading_see_what_was_loaded",),
    "test_step_post_hook": ("test_hooks_around_a_step_are_called_until_they_are_removed",),
    "test_step_pre_hook": ("test_hooks_around_a_step_are_called_until_they_are_removed",),
    "test_step_all_hooks": ("test_hooks_of_all_optimizers_stand_around_those_of_one",),
    "test_deepcopy_copies_all_public_attrs": ("test_a_copy_has_all_attributes_and_takes_the_same_step",),
    # Theirs is about LBFGS, the one that needs a closure. Here a closure may be given to each.
    "test_second_order_optims_return_consistent_types": ("test_a_step_returns_what_its_closure_returned",),
    "test_fused_cpu_matches_cuda": ("test_steps_on_the_gpu_match_those_on_the_cpu",),
    "test_defaults_changed_to_foreach": ("test_a_step_is_the_loop_over_step_param_in_the_order_of_the_parameters",),
    "test_non_empty_state": ("test_a_parameter_that_has_stepped_has_a_state",),
    "test_adamw_serialization": ("test_a_checkpoint_of_torch_says_whether_decay_is_decoupled",),
}
"""Each test of PyTorch's `TestOptimRenewed`, and ours for it, or why there is none."""

BEYOND = {
    "torch.compile (test/inductor/test_compiled_optimizers.py)": "test_the_compiled_training_step_takes_the_same_steps",
    "torch.compile, with its default compiler": "test_the_step_compiled_to_machine_code_takes_the_same_steps",
    "differentiable (test/optim/test_optim.py)": "test_a_step_is_never_recorded_by_autograd",
    "empty and 0-dimensional parameters": "test_empty_and_0_dimensional_parameters_step_beside_others",
    "add_param_group": "test_a_group_added_later_steps_like_one_that_was_there",
    "defaults changed through param_groups": "test_a_setting_changed_in_the_group_is_the_one_that_counts",
    "maximize": "test_maximize_is_a_step_with_the_gradient_turned_round",
    "two optimizers for two groups": "test_two_groups_are_two_optimizers",
}
"""What PyTorch asks of optimizers elsewhere."""


def test_each_of_torchs_checks_has_one_of_ours_and_at_most_a_tenth_has_a_reason_instead():
    reasons = [name for name, ours in TORCHS_CHECKS.items() if isinstance(ours, str)]
    assert len(TORCHS_CHECKS) == 45
    assert len(reasons) <= len(TORCHS_CHECKS) / 10
    ours = {name for names in TORCHS_CHECKS.values() if not isinstance(names, str) for name in names}
    assert {
        name for name in ours | set(BEYOND.values()) if not isinstance(globals().get(name), types.FunctionType)
    } == set()


class Line:
    """A linear layer of two parameters and its squared output, computed in FP32 or wider."""

    def __init__(self, dtype: torch.dtype, contiguous: bool = True, device: str = "cpu") -> None:
        generator = torch.Generator().manual_seed(0)
        numbers = torch.randn(4, 4, 2, generator=generator)
        weight, bias = numbers[:, :3].to(dtype)[..., 0], numbers[:, 3].to(dtype)[..., 0]
        if contiguous:
            weight, bias = weight.contiguous(), bias.contiguous()
        self.weight, self.bias = Parameter(weight.to(device)), Parameter(bias.to(device))
        self.x = torch.randn(3, generator=generator).to(device)
        self.params = [self.weight, self.bias]

    def loss(self) -> torch.Tensor:
        wide = torch.promote_types(self.weight.dtype, torch.float32)
        return (self.weight.to(wide) @ self.x.to(wide) + self.bias.to(wide)).pow(2).sum()

    def backward(self) -> torch.Tensor:
        self.weight.grad = self.bias.grad = None
        loss = self.loss()
        loss.backward()
        return loss

    def train(self, optimizer: torch.optim.Optimizer, steps: int) -> None:
        for _ in range(steps):
            self.backward()
            optimizer.step()

    def same_as(self, other: "Line") -> bool:
        return all(torch.equal(p, q) for p, q in zip(self.params, other.params, strict=True))


def close(mine: list[torch.Tensor], theirs: list[torch.Tensor], tolerance: float = 1e-6) -> None:
    """Compare; numbers of 16 bits may differ by one rounding."""
    for p, q in zip(mine, theirs, strict=True):
        coarse = {torch.float16: 1e-3, torch.bfloat16: 8e-3}.get(p.dtype, tolerance)
        torch.testing.assert_close(p, q, rtol=coarse, atol=coarse)


def remembered(optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    """All tensors of the state."""
    return [v for state in optimizer.state.values() for v in state.values() if isinstance(v, torch.Tensor)]


def right_way(settings: dict, before: float, after: float) -> bool:
    """Whether the loss went where `maximize` says."""
    return after > before if settings.get("maximize") else after < before


def test_every_class_is_described_and_with_masters():
    public = [getattr(labml_opt, name) for name in labml_opt.__all__]
    classes = {c for c in public if isinstance(c, type) and issubclass(c, GenericAdaptiveOptimizer)}
    described = {info.optim_cls for info in INFOS}
    assert classes - {GenericAdaptiveOptimizer, MasterWeights} <= described
    assert {base_of(c) for c in described if issubclass(c, MasterWeights)} == {
        c for c in described if not issubclass(c, MasterWeights)
    }
    flags = {"foreach", "fused", "differentiable"}
    assert [info.name for info in INFOS for settings in settings_of(info) if settings.keys() & flags] == []


def test_importing_torchs_database_leaves_the_process_as_it_was():
    assert not torch.backends.flags_frozen()
    assert hypothesis.settings.get_current_profile_name() not in ("dev", "pytorch_ci")


@every_class
def test_what_cannot_work_is_refused_in_words(info: OptimizerInfo) -> None:
    for error in info.optim_error_inputs_func(device="cpu", dtype=torch.float32):
        given = error.optimizer_error_input
        checks = pytest.warns if issubclass(error.error_type, Warning) else pytest.raises
        if error.error_on == OptimizerErrorEnum.CONSTRUCTION_ERROR:
            with checks(error.error_type, match=error.error_regex):
                info.optim_cls(given.params, **given.kwargs)
        else:
            optimizer = info.optim_cls(given.params, **given.kwargs)
            with_values = [p for p in given.params if not p.is_meta]
            before = copy.deepcopy(with_values)
            with checks(error.error_type, match=error.error_regex):
                optimizer.step()
            assert all(
                torch.equal(p, q) for p, q in zip((p for p in given.params if not p.is_meta), before, strict=True)
            )
            assert not optimizer.state


@every_class
@pytest.mark.parametrize("contiguous", [True, False])
def test_steps_go_in_the_right_direction_with_and_without_a_scheduler(info: OptimizerInfo, contiguous: bool) -> None:
    for makers in ([], *info.scheduler_inputs):
        for settings in list(settings_of(info))[: 5 if makers else None]:
            line = Line(dtype_of(info), contiguous)
            optimizer = info.optim_cls(line.params, **settings)
            schedulers = [make(optimizer) for make in makers]
            before = line.loss().item()
            for _ in range(8):
                loss = optimizer.step(line.backward)
                for scheduler in schedulers:
                    scheduler.step(*([loss.detach()] if isinstance(scheduler, ReduceLROnPlateau) else []))
            assert right_way(settings, before, line.loss().item()), settings


@every_class
def test_groups_under_a_scheduler_go_in_the_right_direction(info: OptimizerInfo) -> None:
    for makers in info.scheduler_inputs:
        line = Line(dtype_of(info))
        optimizer = info.optim_cls([{"params": [line.weight]}, {"params": [line.bias], "lr": 0.01}])
        schedulers = [make(optimizer) for make in makers]
        before = line.loss().item()
        for _ in range(8):
            loss = optimizer.step(line.backward)
            for scheduler in schedulers:
                scheduler.step(*([loss.detach()] if isinstance(scheduler, ReduceLROnPlateau) else []))
        assert line.loss().item() < before


@every_class
def test_a_rate_in_a_tensor_takes_the_steps_of_a_number(info: OptimizerInfo) -> None:
    for settings in settings_of(info):
        number, tensor = Line(dtype_of(info)), Line(dtype_of(info))
        number.train(info.optim_cls(number.params, **{**settings, "lr": 1e-3}), 5)
        tensor.train(info.optim_cls(tensor.params, **{**settings, "lr": torch.tensor(1e-3)}), 5)
        close(tensor.params, number.params)


def rosenbrock(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return (1 - x) ** 2 + 100 * (y - x**2) ** 2


@every_class
def test_two_coordinates_in_turn_come_closer_to_the_valley_of_rosenbrock(info: OptimizerInfo) -> None:
    # One coordinate's gradient at a time; the other one's is 0 and its averages go on.
    param = Parameter(torch.tensor([1.5, 1.5], dtype=torch.float64))
    optimizer = info.optim_cls([param], lr=1e-4)
    before = rosenbrock(*param).item()
    for step in range(20):
        optimizer.zero_grad()
        rosenbrock(*param).backward()
        param.grad[step % 2] = 0
        optimizer.step()
    assert rosenbrock(*param).item() < before


@every_class
def test_a_sparse_gradient_is_refused_and_nothing_has_moved(info: OptimizerInfo) -> None:
    param, dense = Parameter(torch.ones(2)), Parameter(torch.ones(2))
    dense.grad = torch.ones(2)
    param.grad = torch.sparse_coo_tensor(torch.tensor([[0, 0]]), torch.tensor([1.0, 2.0]), (2,), check_invariants=True)
    optimizer = info.optim_cls([dense, param])
    with pytest.raises(RuntimeError, match=f"sparse gradient and {info.name} needs dense ones"):
        optimizer.step()
    assert torch.equal(dense, torch.ones(2))
    assert not optimizer.state
    assert optimizer.param_groups[0]["t"] == 0


def as_real(param: torch.Tensor) -> torch.Tensor:
    return torch.view_as_real(param.detach()) if param.is_complex() else param.detach()


@every_class
def test_complex_parameters_are_two_real_ones_beside_a_real_one(info: OptimizerInfo) -> None:
    for settings in settings_of(info):
        torch.manual_seed(0)
        complex_ones = [Parameter(torch.randn(3, 2, dtype=torch.complex64)), Parameter(torch.randn(2))]
        real_ones = [Parameter(as_real(p).clone()) for p in complex_ones]
        a, b = info.optim_cls(complex_ones, **settings), info.optim_cls(real_ones, **copy.deepcopy(settings))
        for _ in range(3):
            for p, q in zip(complex_ones, real_ones, strict=True):
                p.grad = torch.randn_like(p)
                q.grad = as_real(p.grad).clone()
            a.step(), b.step()
            assert all(torch.equal(as_real(p), q) for p, q in zip(complex_ones, real_ones, strict=True)), settings


@every_class
def test_a_complex_parameter_equals_its_real_and_its_imaginary_part_apart(info: OptimizerInfo) -> None:
    for settings in settings_of(info):
        torch.manual_seed(0)
        whole = Parameter(torch.randn(2, dtype=torch.complex64))
        parts = [Parameter(whole.detach().real.clone()), Parameter(whole.detach().imag.clone())]
        a, b = info.optim_cls([whole], **settings), info.optim_cls(parts, **copy.deepcopy(settings))
        for _ in range(3):
            a.zero_grad(), b.zero_grad()
            rosenbrock(*whole).abs().backward()
            rosenbrock(*torch.complex(*parts)).abs().backward()
            a.step(), b.step()
        close([whole.detach().real, whole.detach().imag], [p.detach() for p in parts], 1e-5)


def small_network() -> nn.Sequential:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(2, 3), nn.Sigmoid(), nn.Linear(3, 1), nn.Sigmoid()).double()


@every_class
def test_capturable_steps_match_ordinary_ones_while_a_layer_is_frozen(info: OptimizerInfo) -> None:
    x = torch.tensor([[0.1, 0.2], [0.3, 0.4], [0.5, 0.6]], dtype=torch.float64)
    for settings in settings_of(info):
        models = [small_network(), small_network()]
        optimizers = [
            info.optim_cls(model.parameters(), **{**copy.deepcopy(settings), "capturable": capturable})
            for model, capturable in zip(models, (False, True), strict=True)
        ]
        for step in range(7):
            for model, optimizer in zip(models, optimizers, strict=True):
                optimizer.zero_grad()
                model[2].requires_grad_(step not in (3, 4))
                if step != 2:
                    model(x).sum().backward()
                optimizer.step()
        close(list(models[1].parameters()), list(models[0].parameters()), 1e-7)
        for p, q in zip(models[0].parameters(), models[1].parameters(), strict=True):
            counts = optimizers[0].state[p]["step"], optimizers[1].state[q]["step"]
            assert counts[0] == counts[1].item()
        assert [optimizers[0].state[p]["step"] for p in models[0].parameters()] == [6, 6, 4, 4]


ALL_DTYPES = (torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.complex64)


@every_class
def test_parameters_of_all_dtypes_in_one_group_step_as_each_alone(info: OptimizerInfo) -> None:
    for settings in settings_of(info):
        torch.manual_seed(0)
        together = [Parameter(torch.randn(2, 3, dtype=dtype)) for dtype in ALL_DTYPES]
        alone = copy.deepcopy(together)
        optimizers = [info.optim_cls(together, **settings)]
        optimizers += [info.optim_cls([p], **copy.deepcopy(settings)) for p in alone]
        for _ in range(3):
            for p, q in zip(together, alone, strict=True):
                p.grad = torch.randn_like(p)
                q.grad = p.grad.clone()
            for optimizer in optimizers:
                optimizer.step()
        assert all(torch.equal(p, q) for p, q in zip(together, alone, strict=True)), settings


@pytest.mark.cuda
@every_class
def test_on_two_devices_each_parameter_steps_as_on_its_own(info: OptimizerInfo) -> None:
    for settings in settings_of(info):
        if settings.get("capturable"):
            continue
        lines = [Line(dtype_of(info), device=device) for device in ("cpu", "cuda")]
        alone = [Line(dtype_of(info), device=device) for device in ("cpu", "cuda")]
        optimizers = [info.optim_cls(line.params, **copy.deepcopy(settings)) for line in alone]
        both = info.optim_cls([p for line in lines for p in line.params], **settings)
        for _ in range(3):
            for line in (*lines, *alone):
                line.backward()
            for optimizer in (both, *optimizers):
                optimizer.step()
        assert all(mine.same_as(other) for mine, other in zip(lines, alone, strict=True))


@every_class
def test_the_default_dtype_has_no_say_in_state_or_steps(info: OptimizerInfo) -> None:
    for capturable in (False, True):
        results = []
        for default in (torch.float32, torch.float64, torch.float16):
            line = Line(dtype_of(info))
            torch.set_default_dtype(default)
            try:
                optimizer = info.optim_cls(line.params, lr=0.01, weight_decay=0.1, capturable=capturable)
                line.train(optimizer, 7)
            finally:
                torch.set_default_dtype(torch.float32)
            kinds = {
                v.dtype for state in optimizer.state.values() for v in state.values() if isinstance(v, torch.Tensor)
            }
            assert kinds == {torch.float32}
            results.append(line)
        assert results[0].same_as(results[1])
        assert results[0].same_as(results[2])


class Peak(TorchDispatchMode):
    """Watch how many bytes of new tensors are alive at the same time."""

    def __init__(self) -> None:
        super().__init__()
        self.now = self.most = 0
        self.known: set[int] = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        before = {x.untyped_storage()._cdata for x in args if isinstance(x, torch.Tensor)}
        result = func(*args, **(kwargs or {}))
        for tensor in result if isinstance(result, (list, tuple)) else [result]:
            if isinstance(tensor, torch.Tensor) and tensor.dim():
                storage = tensor.untyped_storage()
                if storage._cdata not in self.known | before:
                    self.known.add(storage._cdata)
                    self.now += storage.nbytes()
                    self.most = max(self.most, self.now)
                    weakref.finalize(tensor, self.gone, storage._cdata, storage.nbytes())
        return result

    def gone(self, key: int, size: int) -> None:
        self.known.discard(key)
        self.now -= size


@every_class
def test_the_memory_a_step_needs_does_not_grow_with_the_number_of_parameters(info: OptimizerInfo) -> None:
    most = []
    for number in (1, 10):
        params = [Parameter(torch.ones(16, 8, dtype=dtype_of(info))) for _ in range(number)]
        optimizer = info.optim_cls(params)
        for p in params:
            p.grad = torch.ones_like(p)
        for _ in range(6):
            optimizer.step()
        with Peak() as peak:
            optimizer.step()
        most.append(peak.most)
    # The gradient, its widened copy and what a formula has between its first and its last operation.
    assert 0 < most[0] <= 5 * 16 * 8 * 4
    assert most[1] == most[0]


@every_class
@pytest.mark.parametrize("dtype", ALL_DTYPES[:4])
def test_a_step_that_unscales_itself_matches_one_that_need_not(info: OptimizerInfo, dtype: torch.dtype) -> None:
    for settings in settings_of(info):
        plain, scaled = Line(dtype), Line(dtype)
        a = info.optim_cls(plain.params, **settings)
        b = info.optim_cls(scaled.params, **{**copy.deepcopy(settings), "unscale_in_step": True})
        for _ in range(3):
            plain.backward(), scaled.backward()
            for p in scaled.params:
                p.grad.mul_(4)
            b.grad_scale, b.found_inf = torch.tensor(4.0), torch.tensor(0.0)
            a.step(), b.step()
        assert scaled.same_as(plain), settings


@every_class
def test_parameters_without_values_are_refused_until_they_have_some(info: OptimizerInfo) -> None:
    model = nn.Linear(2, 3, device="meta", dtype=dtype_of(info))
    optimizer = info.optim_cls(model.parameters())
    for p in model.parameters():
        p.grad = torch.ones_like(p)
    with pytest.raises(RuntimeError, match="on the meta device and has no values"):
        optimizer.step()
    optimizer.zero_grad()
    model.to_empty(device="cpu")
    for p in model.parameters():
        nn.init.ones_(p)
        p.grad = torch.full_like(p, 1000)
    optimizer = info.optim_cls(model.parameters(), lr=0.1)
    optimizer.step()
    assert all((p < 1).all() for p in model.parameters())


@every_class
def test_an_infinity_found_by_the_scaler_stops_the_step(info: OptimizerInfo) -> None:
    for settings in settings_of(info):
        for scale in (None, torch.ones(1)):
            line, untouched = Line(dtype_of(info)), Line(dtype_of(info))
            optimizer = info.optim_cls(line.params, **settings)
            line.backward()
            optimizer.grad_scale, optimizer.found_inf = scale, torch.ones(())
            optimizer.step()
            assert line.same_as(untouched)
            assert [float(state["step"]) for state in optimizer.state.values()] in ([], [0.0, 0.0])
            assert float(optimizer.param_groups[0]["t"]) == 0


@every_class
def test_a_checkpoint_switched_to_capturable_by_hand_is_loaded(info: OptimizerInfo) -> None:
    for settings in settings_of(info):
        whole, first, second = (Line(dtype_of(info)) for _ in range(3))
        one = info.optim_cls(whole.params, **{**copy.deepcopy(settings), "capturable": True})
        whole.train(one, 4)
        before = info.optim_cls(first.params, **{**copy.deepcopy(settings), "capturable": False})
        first.train(before, 2)
        saved = before.state_dict()
        saved["param_groups"][0]["capturable"] = True
        after = info.optim_cls(second.params, **settings)
        after.load_state_dict(saved)
        with torch.no_grad():
            second.weight.copy_(first.weight), second.bias.copy_(first.bias)
        second.train(after, 2)
        assert all(isinstance(after.state[p]["step"], torch.Tensor) for p in second.params)
        close(second.params, whole.params)


@every_class
def test_a_group_without_decay_beside_one_with_decay(info: OptimizerInfo) -> None:
    for settings in settings_of(info):
        line = Line(dtype_of(info))
        groups = [{"params": [line.weight], **settings}, {"params": [line.bias], **settings, "weight_decay": 0.0}]
        optimizer = info.optim_cls(groups)
        before = line.loss().item()
        line.train(optimizer, 8)
        assert right_way(settings, before, line.loss().item()), settings
        assert optimizer.param_groups[1]["weight_decay"] == 0.0


@every_class
def test_a_group_whose_rate_is_almost_0_stands_still(info: OptimizerInfo) -> None:
    for settings in settings_of(info):
        settings.setdefault("lr", 1e-3)
        line, other = Line(dtype_of(info)), Parameter(torch.ones(2, dtype=dtype_of(info)))
        optimizer = info.optim_cls([{"params": line.params, **settings}, {"params": [other]}], lr=1e-28)
        before = line.loss().item()
        for _ in range(8):
            other.grad = torch.ones_like(other)
            line.train(optimizer, 1)
        assert right_way(settings, before, line.loss().item()), settings
        assert torch.equal(other, torch.ones_like(other))


@every_class
def test_a_step_without_gradients_changes_nothing(info: OptimizerInfo) -> None:
    for settings in settings_of(info):
        params = [torch.full((2, 3), 0.5, dtype=dtype_of(info)) for _ in range(2)]
        optimizer = info.optim_cls(params, **settings)
        assert optimizer.step(lambda: torch.tensor([1.0])) == 1
        assert all((p == 0.5).all() for p in params)
        assert not optimizer.state


@every_class
def test_gradients_of_zero_move_nothing(info: OptimizerInfo) -> None:
    for settings in settings_of(info):
        settings["weight_decay"] = 0.0
        param = Parameter(torch.full((5, 1), 0.7, dtype=dtype_of(info)))
        before = param.detach().clone()
        optimizer = info.optim_cls([param], **settings)
        for _ in range(7):
            param.grad = torch.zeros_like(param)
            optimizer.step()
        assert torch.equal(param, before), settings


@every_class
def test_every_optimizer_can_be_printed(info: OptimizerInfo) -> None:
    for settings in settings_of(info):
        shown = repr(info.optim_cls(Line(dtype_of(info)).params, **settings))
        assert shown.startswith(f"{info.name} (")
        assert "weight_decay: " in shown


def named(params: list[Parameter], with_names: bool) -> list:
    return [(f"name{i}", p) for i, p in enumerate(params)] if with_names else params


def without_names(state_dict: dict) -> dict:
    groups = [{k: v for k, v in group.items() if k != "param_names"} for group in state_dict["param_groups"]]
    return {**state_dict, "param_groups": groups}


@every_class
@pytest.mark.parametrize("names", [(False, False), (True, False), (False, True), (True, True)])
def test_a_loaded_optimizer_steps_beside_the_original(info: OptimizerInfo, names: tuple[bool, bool]) -> None:
    for settings in list(settings_of(info))[: 2 if any(names) else None]:
        line = Line(dtype_of(info))
        optimizer = info.optim_cls(named(line.params, names[0]), **settings)
        line.train(optimizer, 3)
        twin = copy.deepcopy(line)
        loaded = info.optim_cls(named(twin.params, names[1]), **copy.deepcopy(settings))
        loaded.load_state_dict(copy.deepcopy(optimizer.state_dict()))
        line.train(optimizer, 4), twin.train(loaded, 4)
        assert twin.same_as(line)
        torch.testing.assert_close(
            without_names(loaded.state_dict()), without_names(optimizer.state_dict()), rtol=0, atol=0
        )
        loaded.param_groups.extend(loaded.param_groups)
        last = without_names(loaded.state_dict())["param_groups"][-1]
        torch.testing.assert_close(last, without_names(optimizer.state_dict())["param_groups"][-1], rtol=0, atol=0)


@every_class
def test_a_checkpoint_from_before_the_options_is_loaded(info: OptimizerInfo) -> None:
    for settings in settings_of(info):
        line = Line(dtype_of(info))
        optimizer = info.optim_cls(line.params, **settings)
        line.train(optimizer, 2)
        twin, saved = copy.deepcopy(line), copy.deepcopy(optimizer.state_dict())
        for flag in info.not_og_supported_flags:
            del saved["param_groups"][0][flag]
        loaded = info.optim_cls(twin.params, **copy.deepcopy(settings))
        loaded.load_state_dict(saved)
        line.train(optimizer, 2), twin.train(loaded, 2)
        assert twin.same_as(line)


@every_class
@pytest.mark.parametrize("names", [(False, False), (True, False), (False, True), (True, True)])
def test_names_of_parameters_survive_loading_whoever_has_them(info: OptimizerInfo, names: tuple[bool, bool]) -> None:
    first, second = Line(dtype_of(info)), Line(dtype_of(info))
    before = info.optim_cls(named(first.params, names[0]))
    first.train(before, 2)
    after = info.optim_cls(named(second.params, names[1]))
    after.load_state_dict(copy.deepcopy(before.state_dict()))
    second.train(after, 1)
    expected = ["name0", "name1"] if any(names) else None
    assert after.state_dict()["param_groups"][0].get("param_names") == expected


@every_class
@pytest.mark.parametrize("with_names", [True, False])
def test_a_checkpoint_read_with_weights_only_is_the_one_written(info: OptimizerInfo, with_names: bool) -> None:
    for settings in settings_of(info):
        line = Line(dtype_of(info))
        optimizer = info.optim_cls(named(line.params, with_names), **settings)
        line.train(optimizer, 2)
        file = io.BytesIO()
        torch.save(optimizer.state_dict(), file)
        file.seek(0)
        read = torch.load(file, weights_only=True)
        torch.testing.assert_close(without_names(read), without_names(optimizer.state_dict()), rtol=0, atol=0)
        assert read["param_groups"][0].get("param_names") == (["name0", "name1"] if with_names else None)


@every_class
def test_a_step_count_is_loaded_as_a_number_too(info: OptimizerInfo) -> None:
    for capturable in (False, True):
        line = Line(dtype_of(info))
        optimizer = info.optim_cls(line.params, capturable=capturable)
        line.train(optimizer, 3)
        twin, saved = copy.deepcopy(line), copy.deepcopy(optimizer.state_dict())
        for state in saved["state"].values():
            state["step"] = int(state["step"]) if capturable else torch.tensor(float(state["step"]))
        loaded = info.optim_cls(twin.params, capturable=capturable)
        loaded.load_state_dict(saved)
        line.train(optimizer, 1), twin.train(loaded, 1)
        assert twin.same_as(line)


def for_the_gpu(settings: dict) -> dict:
    """The settings with betas as numbers: as tensors they would have to be on the device of the parameter."""
    return {**settings, "betas": tuple(map(float, settings["betas"]))} if "betas" in settings else settings


@pytest.mark.cuda
@every_class
def test_a_checkpoint_of_the_cpu_goes_on_on_the_gpu(info: OptimizerInfo) -> None:
    for settings in map(for_the_gpu, settings_of(info)):
        here, there = Line(dtype_of(info)), Line(dtype_of(info), device="cuda")
        before = info.optim_cls(here.params, **copy.deepcopy(settings))
        here.train(before, 3)
        saved = before.state_dict()
        kept = copy.deepcopy(saved)
        after = info.optim_cls(there.params, **settings)
        after.load_state_dict(saved)
        torch.testing.assert_close(saved, kept, rtol=0, atol=0)
        with torch.no_grad():
            there.weight.copy_(here.weight), there.bias.copy_(here.bias)
        here.train(before, 3), there.train(after, 3)
        close([p.cpu() for p in there.params], here.params, 1e-5)
        assert {v.device.type for s in after.state.values() for v in s.values() if isinstance(v, torch.Tensor)} == {
            "cuda"
        }


@pytest.mark.cuda
@every_class
def test_steps_on_the_gpu_match_those_on_the_cpu(info: OptimizerInfo) -> None:
    for settings in map(for_the_gpu, settings_of(info)):
        here, there = Line(dtype_of(info)), Line(dtype_of(info), device="cuda")
        here.train(info.optim_cls(here.params, **settings), 7)
        there.train(info.optim_cls(there.params, **copy.deepcopy(settings)), 7)
        close([p.cpu() for p in there.params], here.params, 1e-5)


@every_class
def test_hooks_before_and_after_saving_are_called(info: OptimizerInfo) -> None:
    def put_in(optimizer):
        optimizer.state["test"] = 1

    def take_out(optimizer, state_dict):
        state_dict["ran"] = state_dict["state"].pop("test", None)
        return state_dict

    line = Line(dtype_of(info))
    optimizer = info.optim_cls(line.params)
    after = optimizer.register_state_dict_post_hook(take_out)
    assert optimizer.state_dict()["ran"] is None
    optimizer.register_state_dict_pre_hook(put_in)
    assert optimizer.state_dict()["ran"] == 1
    after.remove()
    assert optimizer.state_dict()["state"] == {"test": 1}


def rate_2(optimizer: torch.optim.Optimizer, state_dict: dict) -> None:
    state_dict["param_groups"][0]["lr"] = 0.002


def rate_3_in_a_copy(optimizer: torch.optim.Optimizer, state_dict: dict) -> dict:
    state_dict = copy.deepcopy(state_dict)
    state_dict["param_groups"][0]["lr"] = 0.003
    return state_dict


@every_class
def test_hooks_before_loading_are_called_in_their_order(info: OptimizerInfo) -> None:
    for settings in settings_of(info):
        optimizer = info.optim_cls(Line(dtype_of(info)).params, **settings)
        saved = optimizer.state_dict()
        optimizer.register_load_state_dict_pre_hook(rate_2)
        optimizer.load_state_dict(saved)
        assert optimizer.param_groups[0]["lr"] == 0.002
        first = optimizer.register_load_state_dict_pre_hook(rate_3_in_a_copy, prepend=True)
        optimizer.load_state_dict(saved)
        assert optimizer.param_groups[0]["lr"] == 0.002
        first.remove()
        optimizer.register_load_state_dict_pre_hook(rate_3_in_a_copy)
        optimizer.load_state_dict(saved)
        assert optimizer.param_groups[0]["lr"] == 0.003


@every_class
def test_hooks_after_loading_see_what_was_loaded(info: OptimizerInfo) -> None:
    line = Line(dtype_of(info))
    optimizer = info.optim_cls(line.params, lr=0.001)
    line.train(optimizer, 2)
    seen = []

    def look(optimizer):
        state = optimizer.state[line.weight]
        seen.append((optimizer.param_groups[0]["lr"], state["step"], state["exp_avg"].dtype))

    optimizer.register_load_state_dict_post_hook(look)
    optimizer.load_state_dict(optimizer.state_dict())
    optimizer.register_load_state_dict_pre_hook(rate_3_in_a_copy)
    optimizer.load_state_dict(optimizer.state_dict())
    assert seen == [(0.001, 2, torch.float32), (0.003, 2, torch.float32)]


@every_class
@pytest.mark.parametrize("when", ["pre", "post"])
def test_hooks_around_a_step_are_called_until_they_are_removed(info: OptimizerInfo, when: str) -> None:
    line = Line(dtype_of(info))
    optimizer = info.optim_cls(line.params, lr=0.1)
    start, seen = line.weight.detach().clone(), []

    def look(optimizer, args, kwargs):
        seen.append(torch.equal(line.weight, start))

    hook = getattr(optimizer, f"register_step_{when}_hook")(look)
    line.train(optimizer, 2)
    hook.remove()
    line.train(optimizer, 1)
    assert seen == [when == "pre", False]


@every_class
def test_hooks_of_all_optimizers_stand_around_those_of_one(info: OptimizerInfo) -> None:
    params, called = Line(dtype_of(info)).params, []

    def note(number):
        return lambda *_: called.append(number)

    ours, torchs = info.optim_cls(params), torch.optim.SGD(params)
    hooks = [register_optimizer_step_pre_hook(note(0)), register_optimizer_step_post_hook(note(5))]
    try:
        for optimizer in (ours, torchs):
            hooks += [optimizer.register_step_pre_hook(note(1)), optimizer.register_step_post_hook(note(2))]
        for optimizer in (ours, torchs, ours):
            optimizer.step()
    finally:
        for hook in hooks:
            hook.remove()
    ours.step()
    assert called == [0, 1, 2, 5] * 3


@every_class
@pytest.mark.parametrize("how", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))], ids=["deepcopy", "pickle"])
def test_a_copy_has_all_attributes_and_takes_the_same_step(info: OptimizerInfo, how) -> None:
    for settings in settings_of(info):
        line = Line(dtype_of(info))
        optimizer = info.optim_cls(line.params, **settings)
        line.train(optimizer, 2)
        twin, copied = how((line, optimizer))
        assert {k for k in vars(copied) if k[0] != "_"} == {k for k in vars(optimizer) if k[0] != "_"}
        line.train(optimizer, 1), twin.train(copied, 1)
        assert twin.same_as(line)


@every_class
def test_a_step_returns_what_its_closure_returned(info: OptimizerInfo) -> None:
    line = Line(dtype_of(info))
    optimizer = info.optim_cls(line.params)
    for found_inf in (None, torch.ones(())):
        for loss in (torch.tensor([10.0]), 10.0, 10):
            if found_inf is not None:
                optimizer.found_inf = found_inf
            assert optimizer.step(lambda loss=loss: loss) is loss


@every_class
def test_a_step_is_the_loop_over_step_param_in_the_order_of_the_parameters(info: OptimizerInfo, monkeypatch) -> None:
    line, more = Line(dtype_of(info)), Line(dtype_of(info))
    optimizer = info.optim_cls([{"params": line.params}, {"params": more.params}])
    line.backward(), more.backward()
    more.weight.grad = None
    seen = []
    monkeypatch.setattr(info.optim_cls, "step_param", lambda self, state, group, grad, param: seen.append(grad.shape))
    optimizer.step()
    assert seen == [line.weight.shape, line.bias.shape, more.bias.shape]


@every_class
def test_a_parameter_that_has_stepped_has_a_state(info: OptimizerInfo) -> None:
    for settings in settings_of(info):
        line = Line(dtype_of(info))
        optimizer = info.optim_cls(line.params, **settings)
        line.train(optimizer, 1)
        assert [{"step", "exp_avg"} <= optimizer.state[p].keys() for p in line.params] == [True, True]


@every_class
@pytest.mark.parametrize("theirs", [torch.optim.Adam, torch.optim.AdamW])
def test_a_checkpoint_of_torch_says_whether_decay_is_decoupled(info: OptimizerInfo, theirs) -> None:
    line, twin = Line(torch.float32), Line(torch.float32)
    before = theirs(line.params, weight_decay=0.1, amsgrad=info.optim_cls(line.params).defaults.get("amsgrad", False))
    line.train(before, 2)
    optimizer = info.optim_cls(twin.params)
    if issubclass(info.optim_cls, (AdaBelief, Sophia)):
        # They train by rules that torch hasn't.
        with pytest.raises(ValueError, match=r"is of torch\.optim, which trains without '(rectify|rho)'"):
            optimizer.load_state_dict(before.state_dict())
        return
    optimizer.load_state_dict(before.state_dict())
    assert optimizer.param_groups[0]["weight_decouple"] is (theirs is torch.optim.AdamW)
    assert optimizer.state[twin.weight]["step"] == 2


def compiled_and_not(info: OptimizerInfo, backend: str) -> None:
    results = []
    for compiled in (False, True):
        torch._dynamo.reset()
        torch._dynamo.utils.counters.clear()
        line = Line(dtype_of(info))
        optimizer = info.optim_cls(line.params, lr=0.01, weight_decay=0.1, capturable=True)

        def training_step(line=line, optimizer=optimizer):
            loss = line.backward()
            optimizer.step()
            return loss

        run = torch.compile(training_step, backend=backend) if compiled else training_step
        for _ in range(2):
            run()
        frames = torch._dynamo.utils.counters["frames"]["total"]
        run()
        # What was compiled for two steps serves the third.
        assert torch._dynamo.utils.counters["frames"]["total"] == frames
        assert (frames > 0) is compiled
        results.append(line)
    torch._dynamo.reset()
    close(results[1].params, results[0].params)


# Slow, so one class of each way to step: the others differ in a maximum, in a rate or in the masters alone.
STEPS = ("AdamWarmupCosineDecay", "RAdam", "AdaBelief", "Sophia", "AdamWarmupCosineDecayFP16")


@pytest.mark.parametrize("info", [info for info in INFOS if info.name in STEPS], ids=lambda info: info.name)
@pytest.mark.filterwarnings("ignore")
def test_the_compiled_training_step_takes_the_same_steps(info: OptimizerInfo) -> None:
    compiled_and_not(info, "eager")


@pytest.mark.filterwarnings("ignore")
def test_the_step_compiled_to_machine_code_takes_the_same_steps() -> None:
    compiled_and_not(INFOS[0], "inductor")


@every_class
def test_a_step_is_never_recorded_by_autograd(info: OptimizerInfo) -> None:
    line = Line(dtype_of(info))
    optimizer = info.optim_cls(line.params)
    line.train(optimizer, 2)
    assert all(p.is_leaf and p.requires_grad for p in line.params)
    assert not any(tensor.requires_grad for tensor in remembered(optimizer))


@every_class
def test_empty_and_0_dimensional_parameters_step_beside_others(info: OptimizerInfo) -> None:
    for settings in settings_of(info):
        empty, point, line = Parameter(torch.empty(0, 3)), Parameter(torch.tensor(1.0)), Parameter(torch.ones(1))
        params = [Parameter(p.detach().to(dtype_of(info))) for p in (empty, point, line)]
        optimizer = info.optim_cls(params, **settings)
        for _ in range(2):
            for p in params:
                p.grad = torch.ones_like(p)
            optimizer.step()
        assert params[0].shape == (0, 3)
        assert params[1].shape == ()
        assert params[1].item() == params[2].item()


@every_class
def test_a_group_added_later_steps_like_one_that_was_there(info: OptimizerInfo) -> None:
    for settings in settings_of(info):
        here, there = Line(dtype_of(info)), Line(dtype_of(info))
        a = info.optim_cls([{"params": [here.weight]}, {"params": [here.bias]}], **settings)
        b = info.optim_cls([there.weight], **copy.deepcopy(settings))
        for line in (here, there):
            line.backward()
            line.bias.grad = None
        a.step(), b.step()
        b.add_param_group({"params": [there.bias]})
        here.train(a, 2), there.train(b, 2)
        assert there.same_as(here)


@every_class
def test_a_setting_changed_in_the_group_is_the_one_that_counts(info: OptimizerInfo) -> None:
    changed = {"lr": 0.05, "betas": (0.5, 0.8), "eps": 1e-3, "weight_decay": 0.2, "maximize": True}
    here, there = Line(dtype_of(info)), Line(dtype_of(info))
    a, b = info.optim_cls(here.params), info.optim_cls(there.params, **changed)
    a.param_groups[0].update(changed)
    here.train(a, 3), there.train(b, 3)
    assert here.same_as(there)


@every_class
def test_maximize_is_a_step_with_the_gradient_turned_round(info: OptimizerInfo) -> None:
    for settings in settings_of(info):
        here, there = Line(dtype_of(info)), Line(dtype_of(info))
        a = info.optim_cls(here.params, **{**copy.deepcopy(settings), "maximize": True})
        b = info.optim_cls(there.params, **{**settings, "maximize": False})
        for _ in range(3):
            here.backward(), there.backward()
            for p in there.params:
                p.grad.neg_()
            a.step(), b.step()
        assert here.same_as(there)


@every_class
def test_two_groups_are_two_optimizers(info: OptimizerInfo) -> None:
    for settings in settings_of(info):
        here, there = Line(dtype_of(info)), Line(dtype_of(info))
        other = {**copy.deepcopy(settings), "lr": 0.02}
        a = info.optim_cls([{"params": [here.weight], **settings}, {"params": [here.bias], **other}])
        b = info.optim_cls([there.weight], **copy.deepcopy(settings))
        c = info.optim_cls([there.bias], **copy.deepcopy(other))
        for _ in range(3):
            here.backward(), there.backward()
            a.step(), b.step(), c.step()
        assert here.same_as(there)


def test_the_classes_with_masters_are_tried_on_half_precision():
    assert {dtype_of(info) for info in INFOS if has_masters(info)} == {torch.float16}
    assert len(INFOS) == 2 * sum(map(has_masters, INFOS))
