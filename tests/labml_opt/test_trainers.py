"""Lightning and accelerate drive the optimizers and the scaler as they are, without an adapter."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from labml_opt import AdamFP16, AdamWarmupCosineDecayFP16, GradScalerFP16

pytestmark = [
    pytest.mark.usefixtures("trainers"),
    # What we warn of fails a test; what Lightning says of itself and of torch's other modules doesn't.
    pytest.mark.filterwarnings("error"),
    pytest.mark.filterwarnings("ignore:::pytorch_lightning"),
    pytest.mark.filterwarnings("ignore:::lightning_fabric"),
]

EPOCH = 6
CLIP = 0.1
MakeOptimizer = Callable[[Any], torch.optim.Optimizer]


def scheduled(params: Any) -> torch.optim.Optimizer:
    return AdamWarmupCosineDecayFP16(params, lr=1e-2, warmup=3, total_steps=20)


def plain(params: Any) -> torch.optim.Optimizer:
    return AdamFP16(params, lr=1e-2)


MAKE = {"AdamFP16": plain, "AdamWarmupCosineDecayFP16": scheduled}


def network(dtype: torch.dtype, *, dropout: float = 0.0) -> nn.Module:
    torch.manual_seed(0)
    layers = (nn.Linear(4, 8), nn.LayerNorm(8), nn.Tanh(), nn.Dropout(dropout), nn.Linear(8, 3))
    return nn.Sequential(*layers).to(dtype)


def batches() -> DataLoader[tuple[Tensor, ...]]:
    generator = torch.Generator().manual_seed(1)
    x = 5 * torch.randn(2 * EPOCH, 4, generator=generator)
    y = torch.randint(3, (2 * EPOCH,), generator=generator)
    return DataLoader(TensorDataset(x, y), batch_size=2)


def loss_of(net: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    return nn.functional.cross_entropy(net(x).float(), y)


def restless() -> GradScalerFP16:
    """A scaler that doubles so often that now and then a batch overflows."""
    return GradScalerFP16("cpu", growth_interval=3)


def overflowing() -> GradScalerFP16:
    """A scaler whose scale is too high for the first batches."""
    return GradScalerFP16("cpu", init_scale=2.0**20)


@dataclass
class Run:
    """A training that a trainer, or a loop written by hand, carries out."""

    make: MakeOptimizer = scheduled
    dtype: torch.dtype = torch.float16
    scaler: torch.amp.GradScaler | None = field(default_factory=restless)
    accumulate: int = 1
    clip: float = CLIP
    dropout: float = 0.0

    optimizer: Any = None
    skipped: list[bool] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.net = network(self.dtype, dropout=self.dropout)

    def masters(self) -> list[Tensor]:
        return [master.clone() for master in self.optimizer.master_params()]


class ByHand(Run):
    """The loop that the guide on half precision shows, under autocast, as both trainers run it."""

    def train(self, epochs: int) -> None:
        assert self.scaler
        self.optimizer = self.make(self.net.parameters())
        for _ in range(epochs):
            for number, (x, y) in enumerate(batches(), 1):
                with torch.autocast("cpu", self.dtype, cache_enabled=False):
                    loss = loss_of(self.net, x, y) / self.accumulate
                self.scaler.scale(loss).backward()
                if number % self.accumulate == 0:
                    scale = self.scaler.get_scale()
                    self.scaler.unscale_(self.optimizer)
                    nn.utils.clip_grad_norm_(self.net.parameters(), self.clip)
                    self.scaler.step(self.optimizer)
                    self.scaler.update()
                    self.skipped.append(self.scaler.get_scale() < scale)
                    self.optimizer.zero_grad()


class ByLightning(Run):
    """The same with `Trainer.fit`."""

    def train(self, epochs: int, *, save: Path | None = None, load: Path | None = None) -> None:
        import pytorch_lightning as pl
        from pytorch_lightning.plugins import MixedPrecision

        half: dict[str, Any] = {"precision": "bf16-true"}
        if self.scaler:
            half = {"plugins": MixedPrecision("16-mixed", device="cpu", scaler=self.scaler)}
        self.trainer = pl.Trainer(
            accelerator="cpu",
            max_epochs=epochs,
            enable_checkpointing=False,
            gradient_clip_val=self.clip,
            accumulate_grad_batches=self.accumulate,
            **half,
        )
        self.trainer.fit(self.module(), batches(), ckpt_path=load, weights_only=True)
        self.optimizer = self.trainer.optimizers[0]
        if save:
            self.trainer.save_checkpoint(save)

    def module(self) -> Any:
        import pytorch_lightning as pl

        run = self

        class Module(pl.LightningModule):
            def __init__(self) -> None:
                super().__init__()
                self.net = run.net

            def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> Tensor:
                return loss_of(self.net, *batch)

            def configure_optimizers(self) -> Any:
                return run.make(self.parameters())

            def on_before_optimizer_step(self, optimizer: Any) -> None:
                run.gradients = [param.grad.clone() for param in self.parameters()]

            # Random numbers aren't in Lightning's checkpoints.
            def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
                checkpoint["rng"] = torch.get_rng_state()

            def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
                torch.set_rng_state(checkpoint["rng"])

        return Module()


class ByAccelerate(Run):
    """The same with an `Accelerator`."""

    def train(self, epochs: int, *, save: Path | None = None, load: Path | None = None) -> None:
        from accelerate import Accelerator

        accelerator = Accelerator(
            cpu=True,
            mixed_precision="fp16" if self.scaler else "bf16",
            gradient_accumulation_steps=self.accumulate,
        )
        if self.scaler:
            accelerator.scaler = self.scaler
            accelerator.native_amp = True  # as it is on a GPU
        self.optimizer = self.make(self.net.parameters())
        self.scheduler = torch.optim.lr_scheduler.LambdaLR(self.optimizer, lambda n: 1.0)
        net, optimizer, scheduler, loader = accelerator.prepare(self.net, self.optimizer, self.scheduler, batches())
        if load:
            accelerator.load_state(str(load))
        for _ in range(epochs // 2 if load else 0, epochs):
            for x, y in loader:
                with accelerator.accumulate(net):
                    accelerator.backward(loss_of(net, x, y))
                    if accelerator.sync_gradients:
                        accelerator.clip_grad_norm_(net.parameters(), self.clip)
                    optimizer.step()
                    if accelerator.sync_gradients:
                        self.skipped.append(accelerator.optimizer_step_was_skipped)
                    scheduler.step()
                    optimizer.zero_grad()
        if save:
            accelerator.save_state(str(save))


TRAINERS = [ByLightning, ByAccelerate]


def same(one: list[Tensor], other: list[Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize("accumulate", [1, 2])
@pytest.mark.parametrize("optimizer", MAKE)
@pytest.mark.parametrize("trainer", TRAINERS)
def test_a_trainer_takes_the_steps_of_a_loop_written_by_hand(trainer, optimizer, accumulate):
    run, by_hand = (kind(make=MAKE[optimizer], accumulate=accumulate) for kind in (trainer, ByHand))
    run.train(epochs=3)
    by_hand.train(epochs=3)
    assert 0 < sum(by_hand.skipped) < len(by_hand.skipped)
    assert same(run.masters(), by_hand.masters())
    assert run.scaler.state_dict() == by_hand.scaler.state_dict()


@pytest.mark.parametrize(("dtype", "scale"), [(torch.float16, 1024.0), (torch.bfloat16, None)])
@pytest.mark.parametrize("trainer", TRAINERS)
def test_a_trainer_takes_half_precision_where_float64_goes_and_bf16_needs_no_scaler(trainer, dtype, scale):
    run = trainer(
        make=lambda params: AdamFP16(params, lr=1e-2, optimized_update=False, eps=1e-8),
        dtype=dtype,
        scaler=GradScalerFP16("cpu", scale) if scale else None,
    )
    run.train(epochs=1)

    exact = network(dtype).double()
    start = torch.cat([param.detach().flatten().clone() for param in exact.parameters()])
    adam = torch.optim.Adam(exact.parameters(), lr=1e-2)
    for x, y in batches():
        adam.zero_grad()
        nn.functional.cross_entropy(exact(x.double()), y).backward()
        nn.utils.clip_grad_norm_(exact.parameters(), CLIP)
        adam.step()

    way = torch.cat([master.flatten() for master in run.masters()]) - start
    should_be = torch.cat([param.detach().flatten() for param in exact.parameters()]) - start
    assert {param.dtype for param in run.net.parameters()} == {dtype}
    assert torch.linalg.vector_norm(way - should_be) < 0.02 * torch.linalg.vector_norm(should_be)


@pytest.mark.parametrize("scale", [1.0, 4096.0])
@pytest.mark.parametrize("trainer", TRAINERS)
def test_the_norm_that_a_trainer_clips_is_that_of_the_unscaled_gradient(trainer, scale):
    run = trainer(make=lambda params: AdamFP16(params, betas=(0.0, 0.999)), accumulate=EPOCH)
    run.scaler = GradScalerFP16("cpu", scale)
    run.train(epochs=1)
    gradients = [run.optimizer.state[param]["exp_avg"] for param in run.net.parameters()]
    assert nn.utils.get_total_norm(gradients).item() == pytest.approx(CLIP, rel=1e-4)


def test_accelerate_reports_an_overflow_as_a_skipped_step():
    run, by_hand = ByAccelerate(scaler=overflowing()), ByHand(scaler=overflowing())
    run.train(epochs=1)
    by_hand.train(epochs=1)
    assert run.skipped == by_hand.skipped
    assert 0 < sum(run.skipped) < EPOCH
    assert run.optimizer.param_groups[0]["t"] == run.skipped.count(False)


def test_in_lightning_the_skipped_steps_are_those_that_the_optimizer_has_not_counted():
    run, by_hand = ByLightning(scaler=overflowing()), ByHand(scaler=overflowing())
    run.train(epochs=1)
    by_hand.train(epochs=1)
    assert run.trainer.scaler is run.scaler
    assert run.trainer.global_step == EPOCH
    assert run.trainer.global_step - run.optimizer.param_groups[0]["t"] == sum(by_hand.skipped) > 0
    assert run.scaler.get_scale() == 2.0**20 / 2 ** sum(by_hand.skipped)


@pytest.mark.filterwarnings("ignore:Detected call of `lr_scheduler.step")
def test_lightning_counts_a_skipped_step_in_a_scheduler_of_torch_and_not_in_ours():
    schedulers = []

    def make(params):
        optimizer = scheduled(params)
        schedulers.append(torch.optim.lr_scheduler.LambdaLR(optimizer, lambda n: 1.0))
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedulers[0], "interval": "step"}}

    run = ByLightning(make=make, scaler=overflowing())
    run.train(epochs=1)
    assert schedulers[0].last_epoch == EPOCH
    assert run.optimizer.param_groups[0]["t"] < EPOCH


def test_accelerate_counts_a_skipped_step_in_no_scheduler():
    run = ByAccelerate(scaler=overflowing())
    run.train(epochs=1)
    assert run.scheduler.last_epoch == run.optimizer.param_groups[0]["t"] < EPOCH


def test_a_hook_of_lightning_sees_fp32_gradients_without_the_scale():
    run = ByLightning(accumulate=EPOCH)
    run.train(epochs=1)
    exact = network(torch.float16).double()
    for x, y in batches():
        (nn.functional.cross_entropy(exact(x.double()), y) / EPOCH).backward()
    for grad, param in zip(run.gradients, exact.parameters(), strict=True):
        assert grad.dtype == torch.float32
        torch.testing.assert_close(grad.double(), param.grad, rtol=0.02, atol=1e-3)


@pytest.mark.parametrize("accumulate", [1, 3])
@pytest.mark.parametrize("trainer", TRAINERS)
def test_a_run_resumed_by_a_trainer_is_the_unbroken_one_bit_for_bit(trainer, accumulate, tmp_path):
    unbroken, stopped, resumed = (trainer(accumulate=accumulate, dropout=0.2) for _ in range(3))
    torch.manual_seed(7)
    unbroken.train(epochs=4)

    torch.manual_seed(7)
    stopped.train(epochs=2, save=tmp_path / "checkpoint")
    torch.manual_seed(8)
    resumed.train(epochs=4, load=tmp_path / "checkpoint")

    assert not same(stopped.masters(), resumed.masters())
    assert same(unbroken.masters(), resumed.masters())
    assert unbroken.scaler.state_dict() == resumed.scaler.state_dict()
    assert unbroken.optimizer.param_groups[0]["t"] == resumed.optimizer.param_groups[0]["t"]


def test_the_scaler_that_lightning_makes_refuses_fp16_gradients():
    with pytest.raises(ValueError, match="Attempting to unscale FP16 gradients"):
        ByLightning(scaler=torch.amp.GradScaler("cpu")).train(epochs=1)


def test_lightning_refuses_to_clip_for_an_optimizer_that_unscales_in_its_step():
    run = ByLightning(make=lambda params: AdamFP16(params, unscale_in_step=True))
    with pytest.raises(RuntimeError, match="AdamFP16, does not allow for gradient clipping"):
        run.train(epochs=1)


def test_accelerate_does_not_notice_the_skipped_step_of_an_optimizer_that_unscales_in_its_step():
    run = ByAccelerate(make=lambda params: AdamFP16(params, unscale_in_step=True), scaler=overflowing())
    run.train(epochs=1)
    assert run.optimizer.param_groups[0]["t"] < EPOCH
    assert not any(run.skipped)
