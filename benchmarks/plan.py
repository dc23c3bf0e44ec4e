"""What an outer step of a config would take on accelerators: time, memory, traffic. Nothing is run.

    python -m benchmarks.plan --config=configs/mnist.py:paper --devices=v5e-256
    python -m benchmarks.plan --config=configs/cifar10.py:paper --devices=8xH100,v5e-8
    python -m benchmarks.plan --table          the table of docs/scale.md

The step is traced for the platform, and its operations are counted (`benchmarks.cost`). Peak rates
are those of the makers' data sheets; which share of them is reached is assumed, see SHARES.
`--devices=core` is one core of this machine, with the rates that `benchmarks.plan_fit` measured.
"""

import dataclasses
import json
import re
from pathlib import Path
from typing import NamedTuple

from absl import app, flags
from ml_collections import ConfigDict, config_flags

from benchmarks import measure
from benchmarks.cost import Cost
from benchmarks.plan_steps import Job, Step, step
from pbcs_jax.errors import UserError
from pbcs_jax.experiments import config as config_lib

_CONFIG = config_flags.DEFINE_config_file("config", None, "FILE[:PRESET].")
_DEVICES = flags.DEFINE_list("devices", ["v5e-8", "v5e-256", "8xH100"], "Such as v5e-256, 8xH100.")
_CANDIDATES = flags.DEFINE_integer("num_candidates", 0, "n; 0: the config's, or the data set's.")
_SHAPE = flags.DEFINE_list("shape", [], "Of a sample; empty: the data set's.")
_CLASSES = flags.DEFINE_integer("classes", 10, "Of the data set.")
_COLUMNS = flags.DEFINE_integer("columns", 512, "Of embeddings, by the kernel.")
_TABLE = flags.DEFINE_bool("table", False, "MNIST, CIFAR-10 and ImageNet-1k on all devices.")

FITTED = Path(__file__).parent / "results" / "plan.json"
SETS = {"mnist": (60_000, (28, 28, 1)), "cifar10": (50_000, (32, 32, 3))}


class Device(NamedTuple):
    """One accelerator: peak rates per second, bytes, and how programs are traced for it.

    Attributes:
      matmul: by type, floating-point operations per second of products.
      bandwidth: bytes per second of its memory.
      memory: bytes.
      link: bytes per second to the other devices.
      host: bytes per second from its host.
      latency: seconds per operation, of many small ones.
      meet: seconds per exchange, without its bytes.
      platform: 'gpu' or 'tpu'.
    """

    matmul: dict[str, float]
    bandwidth: float
    memory: float
    link: float
    host: float
    latency: float
    meet: float
    platform: str


# float32: TPUs multiply it as bfloat16 by default, GPUs as TF32. Links: all of a v5e's, one
# direction of NVLink.
DEVICES = {
    "v5e": Device(
        {"float32": 197e12, "bfloat16": 197e12}, 819e9, 16e9, 200e9, 8e9, 1.5e-6, 2e-5, "tpu"
    ),
    "H100": Device(
        {"float32": 494e12, "bfloat16": 989e12}, 3.35e12, 80e9, 450e9, 32e9, 3e-6, 2e-5, "gpu"
    ),
}
SHARES = {"matmul": 0.3, "thin": 0.02, "bandwidth": 0.6, "link": 0.5, "host": 0.5}
"""Of the peak: assumed, since there is no accelerator here to measure it on. Batches are small."""
EXCHANGES = 3
"""Per outer step, at most; see tests/compute/test_mesh.py."""


class Predicted(NamedTuple):
    """Of an outer step: seconds, and bytes per device."""

    seconds: float
    memory: float
    exchanged: float
    fed: float


def parse(text: str) -> tuple[str, int]:
    """The kind and the number of devices.

    >>> parse("v5e-256"), parse("8xH100"), parse("core")
    (('v5e', 256), ('H100', 8), ('core', 1))
    """
    if text == "core":
        return "core", 1
    first, second = re.fullmatch(r"(\w+)-(\d+)", text), re.fullmatch(r"(\d+)x(\w+)", text)
    if first:
        kind, count = first.group(1), int(first.group(2))
    elif second:
        kind, count = second.group(2), int(second.group(1))
    if not (first or second) or kind not in DEVICES or count < 1:
        raise UserError(f"devices is {text!r}: use core, or v5e-N or NxH100 with a number N")
    return kind, count


def seconds_on(device: Device, found: Step, dtype: str) -> float:
    """The longer of computing and moving memory, and what neither overlaps with."""
    cost, rate = found.cost, device.matmul[dtype]
    compute = cost.matmul / (SHARES["matmul"] * rate) + cost.thin / (SHARES["thin"] * rate)
    # Elementwise operations that are not fused away are in `memory`.
    moved = cost.memory / (SHARES["bandwidth"] * device.bandwidth)
    meet = found.exchanged / (SHARES["link"] * device.link)
    meet += EXCHANGES * device.meet * (found.exchanged > 0)
    fed = found.fed / (SHARES["host"] * device.host)
    return max(compute, moved) + cost.ops * device.latency + meet + fed


def predict(job: Job, devices: str) -> Predicted:
    """The step of a job on devices, by name."""
    kind, count = parse(devices)
    if kind == "core":
        found = step(job, 1, "cpu")
        memory = found.memory + found.each
        units = Cost(**json.loads(FITTED.read_text())["seconds_per_unit"])
        seconds = sum(a * b for a, b in zip(units, found.cost, strict=True))
        return Predicted(seconds, memory, 0.0, found.fed)
    device = DEVICES[kind]
    # Devices beyond the number of masks would have nothing to do; the kernel shares its rows.
    used = count if job.network is None else min(count, job.settings.num_masks)
    found = step(job, used, device.platform)
    dtype = job.network.inner.dtype if job.network is not None else "float32"
    # As many networks side by side as there is room for, as in `compute.plan`.
    room = int(device.memory / 2 / max(found.each, 1))
    memory = found.memory + found.each * max(min(found.networks, room), found.networks > 0)
    return Predicted(seconds_on(device, found, dtype), memory, found.exchanged, found.fed)


def job_of(
    config: ConfigDict, n: int, shape: tuple[int, ...], classes: int, columns: int = 512
) -> Job:
    """The selection that a config describes.

    Args:
      config: of the experiment 'summarization'.
      n: candidates; 0: those of the config or the data set.
      shape: of a sample; empty: that of the data set.
      classes: of the data set.
      columns: of embeddings, by the kernel.
    """
    if config.experiment != "summarization" or config.selection.objective == "auto":
        raise UserError(
            f"config is of the experiment {config.experiment!r} with the objective "
            f"{config.selection.objective!r}: give one that selects samples by network or kernel"
        )
    known_n, known_shape = SETS.get(config.data.name, (0, ()))
    n, shape = n or config.data.num_candidates or known_n, shape or known_shape
    if not n or not shape:
        raise UserError(f"data are {config.data.name!r}: give --candidates and --shape")
    size = config_lib.size(config)
    settings = config_lib.loop_settings(config, n)
    if config.selection.objective == "kernel":
        return Job(n, size, (columns,), classes, settings, outer=config.data.num_validation)
    network = config_lib.network(config)
    given = config.model
    return Job(
        n,
        size,
        shape,
        classes,
        settings,
        network,
        config_lib.make_net(given.name, given.width, given.dropout, classes),
        network.outer_batch or config.data.num_validation,
        by_rows=config.data.source == "npy",
    )


def table() -> list[tuple[str, Job]]:
    """What docs/scale.md shows."""
    from configs import cifar10, mnist, npy

    def many(job: Job, num_masks: int) -> Job:
        return dataclasses.replace(
            job, settings=dataclasses.replace(job.settings, num_masks=num_masks)
        )

    mnist_job = job_of(mnist.get_config("paper"), 0, (), 10)
    cifar_job = job_of(cifar10.get_config("paper"), 0, (), 10)
    config = npy.get_config("paper")
    config.coreset_size = 12_800
    config.model.name = "resnet18"
    config.inner.batch_size = 256
    config.inner.steps = 1000
    config.inner.dtype = "bfloat16"
    config.selection.outer_batch = 5000
    images = job_of(config, 1_281_167, (64, 64, 3), 1000)
    kernel = mnist.get_config("kernel")
    kernel.coreset_size = 12_800
    by_kernel = job_of(kernel, 1_281_167, (64, 64, 3), 1000, 512)
    return [
        ("MNIST, `mnist:paper`, M = 5", mnist_job),
        ("MNIST, `mnist:paper`, M = 256", many(mnist_job, 256)),
        ("CIFAR-10, `cifar10:paper`, M = 8", cifar_job),
        ("CIFAR-10, `cifar10:paper`, M = 256", many(cifar_job, 256)),
        ("ImageNet-1k, ResNet-18, M = 8", many(images, 8)),
        ("ImageNet-1k, ResNet-18, M = 256", many(images, 256)),
        ("ImageNet-1k, kernel, d = 512, M = 1", by_kernel),
    ]


def main(_: list[str]) -> None:
    """Prints a table."""
    if _TABLE.value:
        jobs = table()
    elif _CONFIG.value is not None:
        shape = tuple(map(int, _SHAPE.value))
        given = _CANDIDATES.value, shape, _CLASSES.value, _COLUMNS.value
        jobs = [(_CONFIG.value.experiment, job_of(_CONFIG.value, *given))]
    else:
        raise app.UsageError("give --config=FILE[:PRESET], or --table")
    rows = []
    for name, job in jobs:
        for devices in _DEVICES.value:
            found = predict(job, devices)
            rows.append([name, devices, *_texts(found, job)])
    columns = ["selection", "devices", "s per outer step", "hours in all", "GB per device"]
    print(measure.markdown([*columns, "MB exchanged", "MB from the host"], rows))


def _texts(found: Predicted, job: Job) -> list[str]:
    hours = found.seconds * job.settings.outer_steps / 3600
    megabytes = (f"{value / 1e6:.3g}" for value in (found.exchanged, found.fed))
    return [f"{found.seconds:.3g}", f"{hours:.2g}", f"{found.memory / 1e9:.2g}", *megabytes]


if __name__ == "__main__":
    app.run(main)
