"""Which gradient estimator, and why: variance, bias, and outer loss against inner trainings.

    python -m benchmarks.estimators                      all parts, an hour on one core
    python -m benchmarks.estimators --part=exact         bias and variance, by enumeration
    python -m benchmarks.estimators --part=network --seeds=0,1,2,3,4

Four problems of bundled MNIST: 24 of 240 images, clean, with 50 % of symmetric noise, and
unbalanced 50 to 1 (the latter two with 100 clean images as outer data), and 30 of 196 squares of
2 x 2 pixels. An MLP with 32 hidden units (16 for inputs) is trained for 40 steps (20); the outer
loss is the Brier score. Every run has 2,000 inner trainings, 8 per outer step, by the library's own
outer loop and its default optimiser. Every 25 outer steps the outer loss is the mean over 16 fresh
masks from p(m | s), the same random numbers for all. What is there already in --out is not
repeated.
"""

import functools
import itertools
import json
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from absl import app, flags

import pbcs_jax as pbcs
from benchmarks import estimator_kinds as kinds
from benchmarks import measure
from pbcs_jax import data, nets
from pbcs_jax.choices import Inputs, Samples
from pbcs_jax.experiments.features import patches
from pbcs_jax.inner.train import Inner
from pbcs_jax.nets.model import as_model
from pbcs_jax.objectives.network import Network, network_objective
from pbcs_jax.outer import estimators, loop, masks
from pbcs_jax.outer.base import Estimator
from pbcs_jax.outer.settings import Settings

_OUT = flags.DEFINE_string("out", "benchmarks/results/estimators.json", "Where the JSON goes.")
_PART = flags.DEFINE_enum(
    "part", "all", ["all", "exact", "network", "kernel", "losses", "budgets", "optimizers"], "What."
)
_SEEDS = flags.DEFINE_list("seeds", ["0", "1", "2", "3", "4"], "Data, networks and masks.")
_ONLY = flags.DEFINE_list("only", [], "Estimators; all of them if empty.")

PROBLEMS = ("clean", "noisy", "unbalanced", "inputs")
MASKS, TRAININGS, LOOK, LOOKS_AT = 8, 2000, 25, 16
ESTIMATORS: dict[str, Estimator] = {
    "plain": estimators.pge("none"),
    "leave_one_out": estimators.pge(),
    "antithetic": kinds.antithetic(),
    "fixed_size": kinds.fixed_size(),
    "sized": kinds.sized(),
    "gumbel": estimators.gumbel(),
    "path": estimators.path(),
    "hybrid": estimators.hybrid(),
    "fading": estimators.hybrid(path_until=0.5),
    "linear": kinds.linear(),
    "regression": kinds.regression(),
    "regression+path": kinds.with_path(kinds.regression(), 0.5),
    "sized+path": kinds.with_path(kinds.sized(), 0.5),
    "fixed_size+path": kinds.with_path(kinds.fixed_size(), 0.5),
}


@functools.cache
def settings_of(name: str, trainings: int, optimizer: str, rate: float) -> Settings:
    """The outer loop's settings; one object each, so that a program is compiled once."""
    steps = trainings // MASKS
    own: Any = {"mirror": kinds.mirror, "natural": kinds.natural}.get(optimizer)
    return Settings(
        num_masks=MASKS,
        outer_steps=steps,
        estimator=ESTIMATORS[name],
        optimizer=own(rate, steps) if own else optimizer,
        learning_rate=rate,
    )


@functools.cache
def problem_of(kind: str, seed: int) -> tuple[Any, Any, Any, int, int]:
    """`(x, y, validation, n, K)`."""
    given: dict[str, Any] = {"num_validation": 100, "num_candidates": 240}
    if kind == "clean":
        given["num_validation"] = 0
    if kind == "noisy":
        given |= {"noise_kind": "symmetric", "noise_rate": 0.5}
    if kind == "unbalanced":
        given |= {"num_candidates": 1200, "imbalance_factor": 50.0}
    if kind == "inputs":
        given = {"num_candidates": 120}
    found = data.make_problem(data.load("bundled", name="mnist"), seed=seed, **given)
    rows = slice(0, 120 if kind == "inputs" else 240)
    validation = found.validation
    n, size = (196, 30) if kind == "inputs" else (240, 24)
    return found.x[rows], found.y[rows], validation, n, size


def objective_of(kind: str, seed: int, path: bool, outer_loss: str = "brier") -> Any:
    """The objective by networks of a problem; of one kind they share a program for all seeds."""
    x, y, validation, n, _ = problem_of(kind, seed)
    is_inputs = kind == "inputs"
    choice: Any = Samples((48, n))
    if is_inputs:
        choice = Inputs(jnp.asarray(patches(x.shape[1:], 2)))
    made = network_objective(
        as_model(nets.MLP(num_classes=10, hidden=(16,) if is_inputs else (32,))),
        jnp.asarray(x),
        jnp.asarray(y),
        choice,
        Network(Inner(steps=20 if is_inputs else 40), outer_loss=outer_loss),
        validation=validation and tuple(map(jnp.asarray, validation)),
        path=path,
        num_masks=MASKS,
    )
    shape = (kind in ("noisy", "unbalanced"), is_inputs, path, outer_loss)
    structure = _PROGRAMS.setdefault(shape, jax.tree.structure(made))
    return jax.tree.unflatten(structure, jax.tree.leaves(made))


_PROGRAMS: dict[Any, Any] = {}


@jax.jit
def _look(evaluate: Any, key: jax.Array, s: jax.Array) -> jax.Array:
    mask_key, evaluate_key = jax.random.split(key)
    return jnp.mean(evaluate(evaluate_key, masks.sample_masks(mask_key, s, LOOKS_AT)).losses)


def descend(kind: str, seed: int, settings: Settings, outer_loss: str = "brier") -> list[float]:
    """The outer loss at s before the first step and after every `LOOK` steps."""
    _, _, _, n, size = problem_of(kind, seed)
    estimator = settings.gradient_estimator()
    evaluate = objective_of(kind, seed, estimator.needs_path, outer_loss)
    judge = objective_of(kind, seed, False, outer_loss)
    key = jax.random.key(1000 + seed)
    state = loop.init(jax.random.key(seed), n, size, settings)
    losses = [float(_look(judge, key, state.probabilities))]

    def callback(state, metrics):
        losses.append(float(_look(judge, key, state.probabilities)))

    loop.run(state, evaluate, settings, callback, LOOK)
    return losses


def exact(seed: int) -> list[dict[str, Any]]:
    """Bias and variance of each estimator over 8 images of which 3 are chosen.

    The exact gradient is that of the expected loss of networks with fixed random numbers, by all
    256 masks; an estimate is made of 8 masks, 2,000 times. Two points: s = K/n, and s a third of
    the way to a random vertex of C. An estimator with a state has met 100 steps at that s.
    """
    n, size, repeats = 8, 3, 2000
    x, y, validation, _, _ = problem_of("noisy", seed)
    rows = np.argsort(y, kind="stable")[:: len(y) // n][:n]
    assert validation is not None
    evaluate = network_objective(
        as_model(nets.MLP(num_classes=10, hidden=(32,))),
        jnp.asarray(x[rows]),
        jnp.asarray(y[rows]),
        Samples((n,)),
        Network(Inner(steps=40), outer_loss="brier"),
        validation=(jnp.asarray(validation[0]), jnp.asarray(validation[1])),
        path=True,
        num_masks=256,
    )
    key = jax.random.key(seed)
    every = jnp.array(list(itertools.product([0.0, 1.0], repeat=n)), jnp.float32)
    judged = jax.jit(lambda m: evaluate(key, m))
    table = judged(every)
    assert table.path_gradients is not None
    places = 2.0 ** jnp.arange(n - 1, -1, -1)
    vertex = jnp.zeros(n).at[jax.random.permutation(key, n)[:size]].set(1.0)
    points = {"start": jnp.full(n, size / n), "later": jnp.full(n, size / n) * 2 / 3 + vertex / 3}
    of_size = every.sum(1) == size

    def expected(s):
        return jnp.exp(masks.mask_log_prob(every, s)) @ table.losses

    def of_fixed_size(s):
        log_p = jnp.where(of_size, masks.mask_log_prob(every, s), -jnp.inf)
        return jax.nn.softmax(log_p) @ table.losses

    def estimates(name, estimator, s):
        def step(state, key):
            drawn = estimator.sample(key, s, MASKS)
            if name == "gumbel":  # relaxed masks are in no table
                evaluation = evaluate(jax.random.key(seed), drawn)
            else:
                at = (drawn @ places).astype(jnp.int32)
                evaluation = pbcs.Evaluation(
                    table.losses[at], table.ok[at], table.path_gradients[at]
                )
            found, state = estimator.gradient(evaluation, drawn, s, jnp.zeros(()), state)
            return state, found

        keys = jax.random.split(jax.random.key(seed + 1), repeats + 100)
        keys = keys[:400] if name == "gumbel" else keys
        return np.asarray(jax.jit(lambda: jax.lax.scan(step, estimator.init(n), keys)[1])())

    found = []
    for (where, s), (name, estimator) in itertools.product(points.items(), ESTIMATORS.items()):
        values = estimates(name, estimator, s)[100:]
        own = np.asarray(jax.grad(of_fixed_size if name == "fixed_size" else expected)(s))
        mean, variance = values.mean(0), values.var(0).sum()
        found.append(
            {
                "seed": seed,
                "point": where,
                "estimator": name,
                "gradient": float(np.linalg.norm(own)),
                "bias": float(np.linalg.norm(mean - own)),
                "bias_error": float(np.sqrt(variance / len(values))),
                "deviation": float(np.sqrt(variance)),
                "cosine": float(mean @ own / np.linalg.norm(mean) / np.linalg.norm(own)),
                **centred_of(values, own, np.asarray(s)),
            }
        )
    return found


def centred_of(values: np.ndarray, own: np.ndarray, s: np.ndarray) -> dict[str, float]:
    """The same without the part that is equal for all candidates, which the projection removes."""
    apart = jax.vmap(lambda g: kinds.centred(g, jnp.asarray(s)))
    values, own = (
        np.asarray(apart(jnp.asarray(values))),
        np.asarray(apart(jnp.asarray(own[None])))[0],
    )
    return {
        "centred_gradient": float(np.linalg.norm(own)),
        "centred_bias": float(np.linalg.norm(values.mean(0) - own)),
        "centred_deviation": float(np.sqrt(values.var(0).sum())),
    }


def jobs(part: str, seeds: list[int]):
    """`(key, function)` of all that is measured, cheapest order for the compiler."""
    only = _ONLY.value or list(ESTIMATORS)

    def run(name, kind, seed, trainings=TRAININGS, optimizer="adam", rate=0.05, loss="brier"):
        settings = settings_of(name, trainings, optimizer, rate)
        return lambda: descend(kind, seed, settings, loss)

    if part in ("all", "exact"):
        for seed in seeds:
            yield ("exact", seed), functools.partial(exact, seed)
    if part in ("all", "network"):
        for name, kind, seed in itertools.product(only, PROBLEMS, seeds):
            yield ("network", name, kind, seed), run(name, kind, seed)
    if part in ("all", "budgets"):
        for name, kind, seed in itertools.product(only, PROBLEMS, seeds):
            for trainings in (480, 1040):
                yield ("budgets", name, kind, seed, trainings), run(name, kind, seed, trainings)
    if part in ("all", "optimizers"):
        rates = {"adam": (0.02, 0.05, 0.1), "normalized_sgd": (0.2, 0.5, 1.0)}
        rates |= {"natural": (0.02, 0.05, 0.1), "mirror": (0.1, 0.3, 1.0)}
        for name, optimizer in itertools.product(("leave_one_out", "fading"), rates):
            for rate, kind, seed in itertools.product(rates[optimizer], ("clean", "noisy"), seeds):
                key = ("optimizers", name, kind, seed, optimizer, rate)
                yield key, run(name, kind, seed, 1040, optimizer, rate)


def main(argv: list[str]) -> None:
    if len(argv) > 1:
        raise app.UsageError(
            f"unexpected arguments {argv[1:]}: use --part, --seeds, --only, --out."
        )
    path = Path(_OUT.value)
    runs = json.loads(path.read_text())["runs"] if path.exists() else {}
    for key, job in jobs(_PART.value, [int(seed) for seed in _SEEDS.value]):
        name = " ".join(map(str, key))
        if name not in runs:
            found = job()
            runs[name] = np.round(found, 5).tolist() if key[0] != "exact" else found
            measure.write(_OUT.value, "estimators", {"runs": runs})
            print(name, found[-1], file=sys.stderr, flush=True)


if __name__ == "__main__":
    app.run(main)
