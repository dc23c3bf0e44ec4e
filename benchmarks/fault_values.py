"""Values that cannot be: in a config, and in calls of the library."""

import dataclasses
import math
import random
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from ml_collections import ConfigDict

import pbcs_jax as pbcs
from benchmarks.fault_runs import Running, write_data
from pbcs_jax.compute.plan import Compute
from pbcs_jax.errors import UserError
from pbcs_jax.experiments import config as config_lib
from pbcs_jax.interrupt import CODE
from pbcs_jax.nets import MLP
from pbcs_jax.outer.settings import Settings

NUMBERS = (math.nan, math.inf, -math.inf, -1, 0, 1, 3, 0.5, 1e-30, 1e30, 10**30, 2**31, -(2**31))
OTHERS = (None, True, "", "abc", "[bold]\x1b[31m", "../../x", "x" * 5000, "\udcff", b"x", (), (1,))
MORE: tuple[Any, ...] = (
    [math.nan],
    {},
    ("pbcs", 3),
    ("coreset_size=nan",),
    ("data.dir=/../../x",),
    2**64,
    -0.0,
)
VALUES = (*NUMBERS, *OTHERS, *MORE)
SECONDS = 10.0
"""A run that takes longer is asked to stop."""


def small(experiment: str, path: Path) -> dict[str, Any]:
    """A run of seconds, flattened."""
    flat = config_lib.flatten(config_lib.TEMPLATES[experiment]())
    flat |= {"data.source": "npz", "data.name": "", "data.path": str(path), "inner.steps": 3}
    flat |= {"selection.outer_steps": 2, "kernel.outer_steps": 2, "kernel.num_masks": 4}
    flat |= {"evaluation.model": "mlp", "evaluation.steps": 20, "evaluation.epochs": 0}
    flat["evaluation.num_seeds"] = 2
    flat |= {"coreset_size": 9, "num_inputs": 3, "memory_size": 9, "data.num_candidates": 0}
    flat |= {"data.num_samples": 0, "continual.tasks": 2, "stream.chunk": 20, "stream.slots": 3}
    flat |= {"continual.task_size": 40, "time_budget": 1.0}
    flat["data.num_validation"] = 12 if experiment in ("continual", "streaming") else 0
    flat["methods"] = ("pbcs", "uniform")
    known = config_lib.flatten(config_lib.TEMPLATES[experiment]())
    return {key: value for key, value in flat.items() if key in known}


def nested(flat: dict[str, Any]) -> ConfigDict:
    """A config of any values, as a config file may return it."""
    sections: dict[str, Any] = {}
    for key, value in flat.items():
        *outer, last = key.split(".")
        place = sections
        for name in outer:
            place = place.setdefault(name, {})
        place[last] = tuple(value) if isinstance(value, list) else value
    return ConfigDict(sections)


def fuzz(count: int, runs: int) -> dict[str, int]:
    """`count` configs by hypothesis: each refused in one line, or sound; some of those are run."""
    accepted: list[dict[str, Any]] = []
    tally = {"configs": 0, "refused": 0, "accepted": 0, "wrong": 0}
    place = Path(tempfile.mkdtemp())
    bases = {name: small(name, write_data(place / "data.npz")) for name in config_lib.TEMPLATES}
    for base in bases.values():
        config_lib.check(nested(base))  # each is sound but for what follows

    @settings(
        max_examples=count,
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(st.sampled_from(sorted(bases)), st.data())
    def one(name: str, drawn: Any) -> None:
        keys = st.lists(st.sampled_from(sorted(bases[name])), min_size=1, max_size=2, unique=True)
        changes = {key: drawn.draw(st.sampled_from(VALUES)) for key in drawn.draw(keys)}
        config = {**bases[name], **changes}
        tally["configs"] += 1
        try:
            config_lib.check(nested(config))
            numbers = [v for v in config_lib.flatten(nested(config)).values()]
            if any(isinstance(v, float) and not math.isfinite(v) for v in numbers):
                raise AssertionError("a number that is not finite is accepted")
            tally["accepted"] += 1
            accepted.append(config)
        except UserError:
            tally["refused"] += 1
        except Exception as error:
            tally["wrong"] += 1
            print(changes, repr(error), file=sys.stderr)

    one()
    chosen = random.Random(0).sample(accepted, min(runs, len(accepted)))
    for number, config in enumerate(chosen):
        if not _ends(config, place / f"run-{number}"):
            tally["wrong"] += 1
    return tally | {"run": len(chosen)}


def _ends(config: dict[str, Any], folder: Path) -> bool:
    """Whether a run ends, by itself or when it is asked to, without a traceback."""
    flags = [f"--config={_written(config, folder)}", f"--workdir={folder}"]
    running = Running(flags)
    began = time.monotonic()
    while time.monotonic() - began < SECONDS and not running.has_ended():
        time.sleep(0.02)
    running.send(15)
    done = running.wait()
    fine = done.code in (0, 2, CODE) and "Traceback" not in done.output
    if not fine:
        print(folder, done, file=sys.stderr)
    return fine


def _written(config: dict[str, Any], folder: Path) -> Path:
    """A config file with these values."""
    path = folder.with_suffix(".py")
    sections = nested(config).to_dict()
    path.write_text(
        "from ml_collections import ConfigDict\n"
        f"def get_config():\n    return ConfigDict({sections!a})\n"
    )
    return path


def misuses() -> dict[str, int]:
    """Each field of each public record with values that cannot be, and calls with wrong data."""
    tally = {"misuses": 0, "refused": 0, "accepted": 0, "wrong": 0}
    records = (Settings, pbcs.Inner, pbcs.Network, pbcs.Kernel, pbcs.InputKernel, Compute)
    values: tuple[Any, ...] = (math.nan, math.inf, -1, 10**30, "abc", None, [], {})
    for record in records:
        for field in dataclasses.fields(record):
            for value in values:
                _tell(tally, (record.__name__, field.name, value), record, **{field.name: value})
    x, y = np.zeros((20, 3), np.float32), np.arange(20) % 2
    x += np.random.default_rng(0).normal(size=x.shape)
    call: dict[str, Any] = {
        "key": 0,
        "x": x,
        "y": y,
        "model": MLP(num_classes=2),
        "size": 3,
        "progress": False,
    }
    call |= {"objective": "network", "outer_steps": 1, "inner": pbcs.Inner(steps=1)}
    pbcs.select_coreset(**call)  # it is sound but for what follows
    bad: dict[str, tuple[Any, ...]] = {
        "key": (-1, 0.5, "a", None, True),
        "x": (None, "a", 3, x[0], x * np.nan, [], {}, [[1], [1, 2]], x[:5]),
        "y": (None, "a", y[:5], y * np.nan, [], {}, y[:, None] + [[0, 1, 2]]),
        "model": (None, 3, "mlp", MLP, lambda x: x, (1, 2)),
        "size": (0, -1, 2.5, 21, None, "3", math.nan, 10**30),
        "validation": (3, (x,), (x, y[:3]), (x[:, :2], y), "ab"),
        "objective": ("magic", None, 3, Settings(), pbcs.Network),
        "start": ([0.5], x, "a", [2.0] * 20, [math.nan] * 20, 3),
        "compute": (3, None, "cpu"),
        "progress": (None, 3, "yes"),
        "num_masks": (0, 1, 10**9, 2.5),
        "outer_step": (3,),
        "max_ratio": (0.5, -1, math.inf),
    }
    for name, given_values in bad.items():
        for value in given_values:
            _tell(
                tally, ("select_coreset", name, value), pbcs.select_coreset, **call | {name: value}
            )
    return tally


def _tell(tally: dict[str, int], what: Any, function: Any, **arguments: Any) -> None:
    tally["misuses"] += 1
    try:
        found = function(**arguments)
    except UserError:
        tally["refused"] += 1
        return
    except Exception as error:
        tally["wrong"] += 1
        print(what, repr(error)[:300], file=sys.stderr)
        return
    tally["accepted"] += 1
    numbers = vars(found).values() if dataclasses.is_dataclass(found) else ()
    if any(isinstance(v, float) and not math.isfinite(v) for v in numbers):
        tally["wrong"] += 1
        print(what, "is accepted", file=sys.stderr)
