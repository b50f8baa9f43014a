r"""
# Training on handwritten digits

A small convolutional network learns to read digits, with any optimizer of the package and in FP32, FP16 or
BF16. It takes some seconds on a CPU, shows what it does, and can be stopped and resumed without losing a bit.

**Use it when** you want to see an optimizer train, or a training script that has everything a real one needs
and nothing else.

**Don't when** you want to know which optimizer is best. 1,797 images of 8 by 8 pixels are too easy a task: all
of them come out above 90%.

## How to run it

```sh
pip install labml scikit-learn
python -m labml_opt.experiments.digits --optimizer RAdam --precision fp16
```

| option | what it sets | default |
|---|---|---|
| `--optimizer` | the name of [any class](../configs.md#the-names) of the package, without `FP16` | `Adam` |
| `--precision` | `fp32`; `fp16` with FP32 masters and a loss scaler; `bf16` with FP32 masters | `fp32` |
| `--epochs`, `--batch-size` | how often each image is seen, how many of them at a time | 10, 64 |
| `--lr` | the learning rate | one that suits the optimizer |
| `--seed` | the first weights, the order of the images | 0 |
| `--device` | `cuda` or `cpu` | the GPU if there is one |
| `--out` | the folder for checkpoint and log | `runs/digits-` and the two choices |
| `--resume` | go on from the checkpoint in that folder | |

Ctrl-C stops it after the step that it is at, and leaves a checkpoint. The same command with `--resume` goes on
there, and ends with the same weights, bit for bit, as if it had never been stopped. After every epoch there is
a checkpoint as well, because a power cut doesn't press Ctrl-C first.

What was measured is in `log.jsonl` under `labml/logs` in that folder, as labml writes it.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import math
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from labml_opt import GenericAdaptiveOptimizer, GradScalerFP16, Sophia

# The rate that each optimizer gets if none is given. Noam multiplies its own by `lr`, and Sophia moves a weight
# by no more than it.
RATES = {
    "Adam": 2e-3,
    "AMSGrad": 2e-3,
    "AdamWarmup": 2e-3,
    "Noam": 0.25,
    "AdamWarmupCosineDecay": 4e-3,
    "RAdam": 4e-3,
    "AdaBelief": 2e-3,
    "Sophia": 1e-3,
}
DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}

# What has to be the same when a run is resumed: with another batch size or another rate it wouldn't be the same
# run any more.
SAME = ("optimizer", "precision", "epochs", "batch_size", "lr", "seed")

# Between two looks at the curvature Sophia takes this many steps.
CURVATURE_EVERY = 10


def load_data(dtype: torch.dtype, device: torch.device) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """
    Read the digits that come with scikit-learn; nothing is downloaded.

    * `dtype` is what the network computes in
    * `device` is where it does so

    Returns images and labels to learn from, and images and labels to test with: images of shape
    `[n, 1, 8, 8]` from -1 to 1, labels of shape `[n]` from 0 to 9. Raises `SystemExit` with a sentence when
    scikit-learn isn't installed.
    """
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        raise SystemExit("the digits come with scikit-learn, which isn't installed: pip install scikit-learn") from None

    # Pixels are whole numbers from 0 to 16, and 17 values around 0 are exact in FP16 and in BF16, too.
    digits = load_digits()
    images = torch.tensor(digits.images).unsqueeze(1).sub(8).div(8).to(device, dtype)
    labels = torch.tensor(digits.target).to(device)

    # Every fifth image is for the test: neighbours come from the same hand, so both sets know all hands.
    test = torch.arange(len(labels), device=device) % 5 == 0
    return images[~test], labels[~test], images[test], labels[test]


def network() -> nn.Sequential:
    """Return two convolutions and a layer on top: 3,818 weights, images of `[n, 1, 8, 8]` in, `[n, 10]` out."""
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(8, 16, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(256, 10),
    )


def make_optimizer(options: argparse.Namespace, model: nn.Module, steps: int) -> GenericAdaptiveOptimizer:
    """
    Build the optimizer that was chosen.

    * `options` are those of the command line
    * `model` holds the weights, in the dtype they are trained in
    * `steps` is the length of the training, from which the schedules take theirs

    Raises `SystemExit` with a sentence when labml isn't installed.
    """
    try:
        from labml_opt.configs import OptimizerConfigs
    except ImportError as error:
        raise SystemExit(str(error)) from None

    conf = OptimizerConfigs()
    conf.parameters = model.parameters()

    # Half-precision weights need a master copy, whichever optimizer it is. That is all that the precision
    # changes here: the name gets `FP16` behind it.
    conf.optimizer = options.optimizer + ("" if options.precision == "fp32" else "FP16")
    conf.learning_rate = options.lr
    conf.warmup = steps // 10
    conf.total_steps = steps
    conf.d_model = 64
    with silence():
        return cast(GenericAdaptiveOptimizer, conf.optimizer)


class Run:
    """
    **A training**: the network, its optimizer and scaler, the data, and how far it has come.

    * `options` are those of the command line
    * `device` is where it computes

    Two runs that are made alike do the same, and `state_dict` holds all that a run needs to go on.
    """

    def __init__(self, options: argparse.Namespace, device: torch.device) -> None:
        self.options = options
        self.dtype = DTYPES[options.precision]
        self.x, self.y, self.x_test, self.y_test = load_data(self.dtype, device)
        self.batches = math.ceil(len(self.y) / options.batch_size)
        self.steps: int = options.epochs * self.batches
        self.step = 0
        self.losses: list[float] = []  # of the epoch that it is in

        # The weights are drawn in FP32 and then rounded, so the three precisions begin at the same place.
        torch.manual_seed(options.seed)
        self.model = network().to(device, self.dtype)
        self.optimizer = make_optimizer(options, self.model, self.steps)

        # Only FP16 needs a loss scale. Switched off, the scaler hands everything through, and there is one loop
        # for all three.
        self.scaler = GradScalerFP16(device, enabled=options.precision == "fp16")

    def rows(self) -> Tensor:
        """
        Return which images the next step learns from, of shape `[batch_size]` or what is left in the epoch.

        The order of an epoch depends on nothing but the seed and its number. So there is no shuffled list that
        a checkpoint would have to hold: a run that goes on in the middle of an epoch draws the same one again.
        """
        epoch, batch = divmod(self.step, self.batches)
        generator = torch.Generator().manual_seed(10_000 * self.options.seed + epoch)
        order = torch.randperm(len(self.y), generator=generator)
        return order[batch * self.options.batch_size :][: self.options.batch_size].to(self.y.device)

    def train_step(self) -> None:
        """Take one step, and keep the loss that it began with."""
        rows = self.rows()
        x, y = self.x[rows], self.y[rows]
        if isinstance(self.optimizer, Sophia) and self.step % CURVATURE_EVERY == 0:
            self.look_at_curvature(self.optimizer, x)

        # The network answers in its own precision. The softmax inside the loss adds up exponentials, and that
        # is done in FP32.
        loss = cross_entropy(self.model(x).float(), y)

        # With the scaler switched on: multiply by $S$, go backward, divide in FP32, step, and choose the next
        # $S$. Switched off, it is `loss.backward()` and `optimizer.step()`.
        self.scaler.scale(loss).backward()
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.optimizer.zero_grad()
        self.step += 1
        self.losses.append(loss.item())

    def look_at_curvature(self, optimizer: Sophia, x: Tensor) -> None:
        """
        Let Sophia estimate the curvature, from the gradient for labels that the network draws itself.

        * `optimizer` is Sophia
        * `x` is a batch of images
        """
        counted: bool | Tensor = False
        while not counted:
            logits = self.model(x).float()

            # A network that has diverged predicts nothing to draw labels from. Its loss ends the run, after the
            # epoch.
            if not logits.isfinite().all():
                return
            labels = torch.distributions.Categorical(logits=logits.detach()).sample()

            # After an overflow the curvature is what it was: at the very beginning 0, and every weight would
            # move by the full rate for ten steps. $S$ is smaller now, so look again. At a scale of 1 it isn't
            # the scale that overflows.
            last = self.scaler.get_scale() <= self.scaler.min_scale
            self.scaler.scale(cross_entropy(logits, labels)).backward()
            counted = optimizer.update_hessian(len(labels), scaler=self.scaler) or last
            optimizer.zero_grad()

    @torch.no_grad()
    def accuracy(self) -> float:
        """Return the share of the test images that the network reads right."""
        return float((self.model(self.x_test).argmax(1) == self.y_test).float().mean())

    def rate(self) -> float:
        """Return the learning rate of the last step."""
        return float(self.optimizer.get_last_lr()[0])

    def state_dict(self) -> dict[str, Any]:
        """
        Return everything that the next step depends on.

        The optimizer's part holds the FP32 masters and moments and the step of the schedule. The random
        numbers are there for Sophia's labels; on a machine with GPUs each of them has a generator of its own.
        """
        return {
            "options": {name: getattr(self.options, name) for name in SAME},
            "step": self.step,
            "losses": self.losses,
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "scaler": self.scaler.state_dict(),
            "rng": [torch.get_rng_state(), *torch.cuda.get_rng_state_all()],
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """
        Go back to where `state_dict` was called.

        * `state` is what it returned

        Raises `SystemExit` with a sentence when that was another run.
        """
        for name, saved in state["options"].items():
            if saved != getattr(self.options, name):
                option = f"--{name.replace('_', '-')}"
                raise SystemExit(f"the checkpoint is of a run with {option} {saved}: give the same to resume it")
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.scaler.load_state_dict(state["scaler"])
        self.step, self.losses = state["step"], state["losses"]
        first, *gpus = state["rng"]
        torch.set_rng_state(first)
        torch.cuda.set_rng_state_all(gpus[: torch.cuda.device_count()])


def save(run: Run, path: Path) -> None:
    """
    Write a checkpoint so that there is a whole one at every moment.

    * `run` is what to save
    * `path` is the file

    Raises `SystemExit` with a sentence when the disk is full or may not be written to.
    """
    # Written under another name first. A process that is killed in between leaves half a file there, and the
    # last checkpoint as it was; the next one to save writes over the half. `fsync` waits until the bytes are on
    # the disk, and renaming is one step for the file system: the name means the old file or the new one.
    new = path.with_name(f"{path.name}.new")
    try:
        with open(new, "wb") as file:
            torch.save(run.state_dict(), file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(new, path)
    except OSError as error:
        raise SystemExit(f"the checkpoint {path} can't be written ({error.strerror}); the last one is whole") from None


def load(run: Run, path: Path) -> None:
    """
    Read a checkpoint.

    * `run` is a new run with the same options
    * `path` is the file

    Raises `SystemExit` with a sentence when it can't be read, or when it is of another run.
    """
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        raise SystemExit(f"{path} can't be read as a checkpoint ({type(error).__name__}): give another --out") from None
    if not isinstance(state, dict) or "options" not in state:
        raise SystemExit(f"{path} is no checkpoint of this program: give another --out")
    run.load_state_dict(state)


class CtrlC:
    """
    **Ctrl-C, taken as a request.** Within `with CtrlC() as ctrl_c` the first one sets `ctrl_c.pressed`, and the
    loop stops when it is ready to; a second one stops at once, as usual.

    An exception in the middle of a step would leave some weights moved and others not. No checkpoint of that
    could be resumed to the bit.
    """

    def __enter__(self) -> CtrlC:
        self.pressed = False
        self._before = signal.signal(signal.SIGINT, self._press)
        return self

    def __exit__(self, *error: object) -> None:
        signal.signal(signal.SIGINT, self._before)

    def _press(self, number: int, frame: FrameType | None) -> None:
        if self.pressed:
            raise KeyboardInterrupt
        self.pressed = True


def silence() -> contextlib.redirect_stdout[io.StringIO]:
    """Keep labml from printing within a `with` block: it reports each step and that it has no settings."""
    return contextlib.redirect_stdout(io.StringIO())


@contextlib.contextmanager
def home_in(folder: Path) -> Iterator[None]:
    """Let `~` be `folder` within a `with` block; labml writes notes about all projects to `~/.labml`."""
    before = {name: os.environ.get(name) for name in ("HOME", "USERPROFILE")}
    os.environ.update(dict.fromkeys(before, str(folder)))
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name)
            if value is not None:
                os.environ[name] = value


@contextlib.contextmanager
def tracked(run: Run, folder: Path) -> Iterator[None]:
    """
    Record within a `with` block what is handed to labml's tracker.

    * `run` is described in the record
    * `folder` is where labml writes, and nowhere else
    """
    from labml import experiment, lab

    folder = folder.resolve()
    with silence(), home_in(folder):
        lab.configure({"path": str(folder)})
        experiment.create(name="digits", comment=f"{run.options.optimizer} {run.options.precision}", writers={"file"})
        experiment.configs({name: getattr(run.options, name) for name in SAME})
        watcher = experiment.start()
    with watcher:
        yield


def train(run: Run, checkpoint: Path) -> bool:
    """
    Train until the last step, or until somebody presses Ctrl-C.

    * `run` is new, or was loaded
    * `checkpoint` is the file to save it in

    Returns whether the training is complete. Raises `SystemExit` with a sentence when the loss is no number any
    more; the last checkpoint then stays as it was.
    """
    from labml import tracker

    with CtrlC() as ctrl_c:
        while run.step < run.steps and not ctrl_c.pressed:
            run.train_step()
            if run.step % run.batches:
                continue

            # An epoch is over. Its mean loss is infinite or NaN if one of its losses was, and going on would be
            # no use.
            loss, run.losses = sum(run.losses) / len(run.losses), []
            if not math.isfinite(loss):
                raise SystemExit(f"the loss is {loss} after {run.step} steps: give a lower --lr than {run.options.lr}")
            values = {"loss": loss, "accuracy": run.accuracy(), "rate": run.rate(), "scale": run.scaler.get_scale()}
            tracker.save(run.step, values)
            save(run, checkpoint)
            print(
                f"epoch {run.step // run.batches:3} of {run.options.epochs}   loss {values['loss']:.4f}   "
                f"accuracy {values['accuracy']:.1%}   rate {values['rate']:.1e}   scale {values['scale']:g}",
                flush=True,
            )

        # Stopped within an epoch: this is the checkpoint that the next command goes on from.
        if run.step % run.batches:
            save(run, checkpoint)
    return run.step == run.steps


@contextlib.contextmanager
def reproducible() -> Iterator[None]:
    """Within a `with` block let the same run compute the same numbers, and let FP16 be fast enough on a CPU."""
    # On a GPU some operations add up in whatever order the threads come; here they don't. The setting of cuBLAS
    # has to be there before it is first used.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    before = torch.are_deterministic_algorithms_enabled(), torch.backends.mkldnn.enabled
    torch.use_deterministic_algorithms(True)

    # On a CPU torch hands convolutions to oneDNN, which on most of them has no fast way back through FP16: for
    # this network torch's own code is several times as fast.
    torch.backends.mkldnn.enabled = False  # type: ignore[assignment]
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before[0])
        torch.backends.mkldnn.enabled = before[1]


def number(type_: type[int] | type[float], least: int, most: float = math.inf) -> Callable[[str], float]:
    """Return a reader of numbers for the command line, which takes finite ones from `least` to `most`."""

    def read(text: str) -> float:
        with contextlib.suppress(ValueError):
            if least <= (value := type_(text)) <= most and value < math.inf:
                return value
        kind = "whole number" if type_ is int else "number"
        to = "" if most == math.inf else f" to {most}"
        raise argparse.ArgumentTypeError(f"{text} is no {kind} from {least}{to}")

    return read


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """
    Read the command line.

    * `arguments` are its words, or `None` for those of the process

    Raises `SystemExit`, after a sentence about what is wrong.
    """
    parser = argparse.ArgumentParser(
        prog="python -m labml_opt.experiments.digits",
        description="Train a small network on handwritten digits with any optimizer of labml_opt.",
    )
    parser.add_argument("--optimizer", default="Adam", choices=RATES)
    parser.add_argument("--precision", default="fp32", choices=DTYPES)
    parser.add_argument("--epochs", default=10, type=number(int, 1))
    parser.add_argument("--batch-size", default=64, type=number(int, 1))
    parser.add_argument("--lr", type=number(float, 0))
    parser.add_argument("--seed", default=0, type=number(int, 0, 10**9))
    parser.add_argument("--device", choices=("cuda", "cpu"))
    parser.add_argument("--out", type=Path)
    parser.add_argument("--resume", action="store_true")
    options = parser.parse_args(arguments)
    if options.lr is None:
        options.lr = RATES[options.optimizer]
    if options.out is None:
        options.out = Path("runs") / f"digits-{options.optimizer}-{options.precision}"
    if options.device == "cuda" and not torch.cuda.is_available():
        parser.error("there is no GPU here that torch can use: leave out --device to train on the CPU")
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    """
    Run the program.

    * `arguments` are the words of the command line, or `None` for those of the process

    Returns its exit status: 0 when the training is complete, 130 when it was stopped.
    """
    options = parse(arguments)
    device = torch.device(options.device or ("cuda" if torch.cuda.is_available() else "cpu"))
    checkpoint = options.out / "checkpoint.pt"

    # Nothing is written over without being asked: a checkpoint may be hours of work.
    if checkpoint.exists() and not options.resume:
        raise SystemExit(f"{checkpoint} is there already: give --resume to go on from it, or another --out")
    if options.resume and not checkpoint.exists():
        raise SystemExit(f"there is no checkpoint {checkpoint}: leave out --resume to begin a run")
    try:
        (options.out / "labml").mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SystemExit(f"the folder {options.out} can't be made ({error.strerror}): give another --out") from None

    with reproducible():
        run = Run(options, device)
        if options.resume:
            load(run, checkpoint)
        print(f"{options.optimizer} in {options.precision} on {device}, steps {run.step} to {run.steps}", flush=True)
        with tracked(run, options.out / "labml"):
            done = train(run, checkpoint)
        if not done:
            print(f"stopped after {run.step} of {run.steps} steps; the same command with --resume goes on from there")
            return 130
        print(f"{run.accuracy():.1%} of the test images are read right; the weights are in {checkpoint}")
        return 0


if __name__ == "__main__":
    raise SystemExit(main())
