"""The cost model of `benchmarks.plan` on this machine: fitted on some settings, checked on others.

    taskset -c 1 python -m benchmarks.plan_fit
    taskset -c 1 python -m benchmarks.plan_fit --only="a million"     measures these, fits anew

Seconds are those of the processor, per outer step, on one core: the median of --repeats steps. The
model is linear in what `benchmarks.cost` counts, with coefficients of at least 0.
"""

import json
import statistics
import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from absl import app, flags
from scipy.optimize import nnls

import pbcs_jax as pbcs
from benchmarks import measure
from benchmarks.plan_steps import Job, step
from pbcs_jax import nets
from pbcs_jax.outer import loop, masks

_OUT = flags.DEFINE_string("out", "benchmarks/results/plan.json", "Where the JSON goes.")
_REPEATS = flags.DEFINE_integer("repeats", 5, "Steps of each setting.", lower_bound=3)
_ONLY = flags.DEFINE_string("only", "", "Of settings that were measured, those with this in them.")

PICTURE = (28, 28, 1)


def _network(net: Any, n: int, size: int, steps: int, shape=PICTURE, **options: Any) -> Job:
    optimizer = options.pop("optimizer", "sgd")
    inner = pbcs.Inner(steps=steps, optimizer=optimizer, learning_rate=0.01)
    settings = pbcs.Settings(**options)
    return Job(n, size, shape, 10, settings, pbcs.Network(inner), net, outer=100)


def _kernel(n: int, d: int, size: int, **options: Any) -> Job:
    return Job(n, size, (d,), 10, pbcs.Settings(**options))


WIDE = nets.MLP(hidden=(256, 256))
FITTED = {
    "MLP, K = 100": _network(nets.MLP(), 10_000, 100, 100),
    "MLP, K = 400": _network(nets.MLP(), 10_000, 400, 50),
    "MLP, Adam, K = 200": _network(nets.MLP(), 1_000, 200, 30, optimizer="adam"),
    "wide MLP, Adam, K = 500": _network(WIDE, 2_000, 500, 20, optimizer="adam"),
    "ConvNet-8, K = 25": _network(nets.ConvNet(width=8), 1_000, 25, 10),
    "ConvNet-8, K = 100": _network(nets.ConvNet(width=8), 10_000, 100, 10),
    "ConvNet-16, K = 50": _network(nets.ConvNet(width=16), 1_000, 50, 10, num_masks=4),
    "MLP, n = a million": _network(nets.MLP(hidden=(8,)), 1_000_000, 50, 5, shape=(16,)),
    "kernel, pge, n = 200,000, d = 64": _kernel(200_000, 64, 200),
    "kernel, hybrid, n = 50,000, d = 256": _kernel(50_000, 256, 500, estimator="hybrid"),
    "kernel, differences, n = 100,000, d = 128": _kernel(
        100_000, 128, 300, estimator="differences", num_masks=1
    ),
}
CHECKED = {
    "MLP, K = 1,000": _network(nets.MLP(), 20_000, 1_000, 30),
    "wide MLP, hybrid, K = 200": _network(
        WIDE, 5_000, 200, 40, optimizer="adam", estimator="hybrid"
    ),
    "ConvNet-12, K = 60": _network(nets.ConvNet(width=12), 5_000, 60, 15, num_masks=6),
    "kernel, hybrid, n = 200,000, d = 512": _kernel(
        200_000, 512, 1_000, estimator="hybrid", num_masks=4
    ),
}


def measured(job: Job, repeats: int) -> float:
    """Seconds of the processor per outer step."""
    rng = np.random.default_rng(0)
    draw = lambda count: (  # noqa: E731
        rng.standard_normal((count, *job.shape), np.float32),
        rng.integers(0, job.classes, count).astype(np.int32),
    )
    x, y = draw(job.n)
    estimator = job.settings.gradient_estimator()
    levels = masks.capacities(job.n, job.size)
    if job.network is None:
        objective = pbcs.kernel_objective(
            *(jnp.asarray(x), y, pbcs.Kernel(ridge=0.1)),
            capacity=levels[-1],
            path=estimator.needs_path,
            differences=estimator.needs_differences,
        )
    else:
        objective = pbcs.network_objective(
            *(nets.as_model(job.model), x, y, pbcs.Samples(levels), job.network),
            validation=draw(job.outer),
            path=estimator.needs_path,
            num_masks=job.settings.num_masks,
        )
    state = loop.init(jax.random.key(0), job.n, job.size, job.settings)
    seconds = []
    for _ in range(1 + repeats):
        began = time.process_time()
        state, metrics = loop.step(state, objective, job.settings)
        jax.block_until_ready((state, metrics))
        seconds.append(time.process_time() - began)
    jax.clear_caches()
    return statistics.median(seconds[1:])


def fit(costs: list[Any], seconds: list[float]) -> list[float]:
    """Seconds per unit of each cost: the least relative errors."""
    rows = np.array(costs, float)
    scale = rows.max(axis=0)
    found, _ = nnls(rows / scale / np.array(seconds)[:, None], np.ones(len(seconds)))
    return (found / scale).tolist()


def main(_: list[str]) -> None:
    """Prints the table and writes the coefficients."""
    jobs = FITTED | CHECKED
    costs = {name: step(job, 1, "cpu").cost for name, job in jobs.items()}
    file, seconds = Path(_OUT.value), {}
    before = json.loads(file.read_text())["settings"] if _ONLY.value and file.exists() else {}
    for name, job in jobs.items():
        is_known = name in before and _ONLY.value not in name
        seconds[name] = before[name]["measured"] if is_known else measured(job, _REPEATS.value)
        print(f"{name}: {seconds[name]:.3f} s", *(f"{c:.2e}" for c in costs[name]), flush=True)
    unit = fit([costs[name] for name in FITTED], [seconds[name] for name in FITTED])
    rows, results = [], {}
    for name in jobs:
        predicted = float(np.dot(unit, costs[name]))
        error = predicted / seconds[name] - 1
        use = "checked" if name in CHECKED else "fitted"
        results[name] = {"use": use, "measured": seconds[name], "predicted": predicted}
        rows.append([name, use, f"{seconds[name]:.3f}", f"{predicted:.3f}", f"{error:+.0%}"])
    print(measure.markdown(["setting", "use", "measured, s", "predicted, s", "error"], rows))
    names = costs[next(iter(jobs))]._fields
    units = dict(zip(names, unit, strict=True))
    print({name: f"{1 / value:.3g} per s" if value else "free" for name, value in units.items()})
    measure.write(_OUT.value, "plan_fit", {"seconds_per_unit": units, "settings": results})


if __name__ == "__main__":
    app.run(main)
