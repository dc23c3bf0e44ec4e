"""Wall-clock to a given validation loss: each estimator, and the same method in plain PyTorch.

    python -m benchmarks.time_to_quality --out=benchmarks/results/time_to_quality.json

Half of the labels of 1,000 bundled MNIST images are wrong; 100 are to be chosen by the Brier score
on 100 clean ones, MLP, 8 masks. The policy gradient with the leave-one-out baseline runs to its end
(100 SGD steps, 200 outer Adam steps at 0.05); the median of its last 10 losses is what the others
are to reach with theirs. "fast" settings are 50 SGD steps and 80 outer steps at 0.2. All is
compiled before the clock starts. Whoever is not there when the reference has ended stops too; those
marked with * run on the first problem only. PyTorch does the reference's steps one mask after
another, as the published code does, for a few outer steps; its time is extrapolated to all.
"""

import importlib
import statistics
import sys
import time
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
from absl import app, flags

from benchmarks import measure
from benchmarks.pages import speed
from benchmarks.torch_nets import torch_mlp
from pbcs_jax import data, nets
from pbcs_jax.choices import Samples
from pbcs_jax.inner.train import Inner
from pbcs_jax.objectives.network import Network, network_objective
from pbcs_jax.outer import loop, masks
from pbcs_jax.outer.settings import Settings

_OUT = flags.DEFINE_string("out", "benchmarks/results/time_to_quality.json", "The JSON.")
_SEEDS = flags.DEFINE_integer("seeds", 5, "Problems, each with its own noise.", lower_bound=1)

SIZE, WINDOW, TORCH_STEPS = 100, 10, 3
REFERENCE = "leave-one-out"
FAST = {"inner_steps": 50, "outer_steps": 80, "learning_rate": 0.2}
ESTIMATORS: dict[str, dict[str, Any]] = {
    REFERENCE: {},
    "no baseline (the paper's) *": {"baseline": "none"},
    "gumbel *": {"estimator": "gumbel"},
    "hybrid *": {"estimator": "hybrid"},
    "hybrid, fading": {"estimator": "hybrid", "path_until": 0.5},
    "leave-one-out, fast": FAST,
    "hybrid, fading, fast": {**FAST, "estimator": "hybrid", "path_until": 0.5},
}


def steps_of(problem: data.Problem, options: dict[str, Any], seed: int) -> Iterator[dict]:
    """The outer steps, one by one: the seconds since the start, and the outer loss."""
    inner = Inner(steps=options.get("inner_steps", 100))
    settings = Settings(**{k: v for k, v in options.items() if k != "inner_steps"})
    n = len(problem.y)
    evaluate = network_objective(
        nets.as_model(nets.MLP()),
        problem.x,
        problem.y,
        Samples(masks.capacities(n, SIZE)),
        Network(inner, outer_loss="brier"),
        validation=(problem.x_val, problem.y_val),
        path=settings.gradient_estimator().needs_path,
        num_masks=settings.num_masks,
    )
    state = loop.init(jax.random.key(seed), n, SIZE, settings)
    jax.block_until_ready(loop.step(state, evaluate, settings))
    begin = time.perf_counter()
    for _ in range(settings.outer_steps):
        state, metrics = loop.step(state, evaluate, settings)
        loss = float(metrics["outer_loss"])
        yield {"seconds": time.perf_counter() - begin, "loss": loss}


def run(steps: Iterator[dict], target: float, limit: float) -> dict[str, Any]:
    """Until the median of the last losses is at most the target, or the time is over."""
    losses: list[float] = []
    for step in steps:
        losses.append(step["loss"])
        level = statistics.median(losses[-WINDOW:])
        if (len(losses) >= WINDOW and level <= target) or step["seconds"] > limit:
            break
    return {"steps": len(losses), "seconds": step["seconds"], "loss": level, "losses": losses}


def torch_seconds(torch: Any, problem: data.Problem) -> float:
    """Seconds of one outer step of the plain loop: eager, one mask after another."""
    f = torch.nn.functional
    assert problem.x_val is not None and problem.y_val is not None  # as main made it
    x, x_val = (torch.from_numpy(np.moveaxis(a, -1, 1).copy()) for a in (problem.x, problem.x_val))
    y, y_val = (torch.from_numpy(a.astype(np.int64)) for a in (problem.y, problem.y_val))
    s = torch.full((len(y),), SIZE / len(y))

    def loss_of(mask: Any) -> float:
        rows = mask.nonzero()[:, 0]
        net = torch_mlp(torch)
        optimiser = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, 100)
        for _ in range(100):
            optimiser.zero_grad()
            f.cross_entropy(net(x[rows]), y[rows]).backward()
            optimiser.step()
            schedule.step()
        with torch.no_grad():
            return float(f.cross_entropy(net(x_val), y_val))

    def outer_step() -> None:
        drawn = torch.bernoulli(s.expand(8, -1))
        losses = torch.tensor([loss_of(mask) for mask in drawn])
        _ = ((losses - losses.mean()) @ (drawn - s)) / (7 * s * (1 - s))

    outer_step()
    return statistics.median(measure.seconds(outer_step) for _ in range(TORCH_STEPS))


def summarise(runs: list[dict[str, Any]], torch_step: float | None) -> list[dict[str, Any]]:
    """Medians over the seeds, as shares of the reference's time."""
    reference = {r["seed"]: r for r in runs if r["estimator"] == REFERENCE}
    rows = []
    for name in ESTIMATORS:
        mine = [r for r in runs if r["estimator"] == name]
        shares = [r["seconds"] / reference[r["seed"]]["seconds"] for r in mine]
        rows.append(
            {
                "estimator": name,
                "reached": f"{sum(r['loss'] <= reference[r['seed']]['loss'] for r in mine)}"
                f" of {len(mine)}",
                "steps": statistics.median(r["steps"] for r in mine),
                "seconds": statistics.median(r["seconds"] for r in mine),
                "share": statistics.median(shares),
            }
        )
    if torch_step is not None:
        total = torch_step * Settings().outer_steps
        row = {"estimator": "PyTorch, leave-one-out (extrapolated)", "reached": "-"}
        rows.append(
            row
            | {
                "steps": Settings().outer_steps,
                "seconds": total,
                "share": total / rows[0]["seconds"],
            }
        )
    return rows


def main(argv: list[str]) -> None:
    if len(argv) > 1:
        raise app.UsageError(f"unexpected arguments {argv[1:]}: use --out, --seeds, ...")
    runs: list[dict[str, Any]] = []
    problems = [
        data.make_problem(
            data.load("bundled", name="mnist"),
            seed=seed,
            num_candidates=1000,
            num_validation=100,
            noise_kind="symmetric",
            noise_rate=0.5,
        )
        for seed in range(_SEEDS.value)
    ]
    for seed, problem in enumerate(problems):
        target, limit = -np.inf, np.inf
        for name, options in ESTIMATORS.items():
            if seed and name.endswith("*"):
                continue
            found = run(steps_of(problem, options, seed), target, limit)
            if name == REFERENCE:
                target, limit = found["loss"], found["seconds"]
            runs.append({"estimator": name, "seed": seed, **found})
            print(f"seed {seed}, {name}: {found['loss']:.4f}", file=sys.stderr)
            measure.write(_OUT.value, "time_to_quality", {"runs": runs})
    try:
        torch_step = torch_seconds(importlib.import_module("torch"), problems[0])
    except ImportError:
        print("without PyTorch: pip install 'pbcs_jax[bench]' for that line", file=sys.stderr)
        torch_step = None
    rows = summarise(runs, torch_step)
    print(speed.time_to_quality({"rows": rows}))
    measure.write(_OUT.value, "time_to_quality", {"rows": rows, "runs": runs})


if __name__ == "__main__":
    app.run(main)
