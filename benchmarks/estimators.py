"""Which gradient estimator, and why: variance, bias, and outer loss against inner trainings.

    python -m benchmarks.estimators                      all parts, a quarter of an hour
    python -m benchmarks.estimators --part=exact         bias and variance, by enumeration
    python -m benchmarks.estimators --part=network       2,000 trainings by every estimator

Four problems of bundled MNIST. 24 of 240 images: clean, with 50 % of symmetric noise, and with
classes unbalanced 50 to 1; the last two have 120 clean images as outer data. 30 of 196 inputs of
100 images, with 100 others as outer data. Images are shrunk to 14 x 14 pixels, and where samples
are chosen, to their 30 first principal components, so that a training of an MLP with 20 hidden
units takes 30 steps and a tenth of a millisecond. The library's own outer loop and objective take
8 masks per step, all seeds in one program. Every 25 outer steps the outer loss is looked
at: the mean over 32 fresh masks from p(m | s), over 32 masks of exactly K, and of the coreset of
the K largest probabilities with 16 networks, by the same random numbers for all estimators. What is
in --out is not repeated.
"""

import functools
import itertools
import json
import sys
from collections.abc import Sequence
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
from pbcs_jax.compute.plan import Compute
from pbcs_jax.inner.train import Inner
from pbcs_jax.nets.model import as_model
from pbcs_jax.objectives.network import Network, network_objective
from pbcs_jax.outer import estimators, loop, masks
from pbcs_jax.outer.base import Estimator
from pbcs_jax.outer.settings import Settings

_OUT = flags.DEFINE_string("out", "benchmarks/results/estimators.json", "Where the JSON goes.")
_PART = flags.DEFINE_enum(
    "part", "all", ["all", "exact", "network", "losses", "budgets", "optimizers"], "What."
)
_SEEDS = flags.DEFINE_list("seeds", ["0", "1", "2", "3", "4"], "Data, networks and masks.")
_ONLY = flags.DEFINE_list("only", [], "Estimators; all of them if empty.")

PROBLEMS = ("clean", "noisy", "unbalanced", "inputs")
MASKS, TRAININGS, LOOK, LOOKS_AT = 8, 2000, 25, 32
COMPONENTS, ROWS = 30, 64
ESTIMATORS: dict[str, Estimator] = {
    "plain": estimators.pge("none"),
    "leave_one_out": estimators.pge(),
    "exact_k": estimators.exact_k(),
    "antithetic": kinds.antithetic(),
    "sized": kinds.sized(),
    "gumbel": estimators.gumbel(),
    "path": estimators.path(),
    "hybrid": estimators.hybrid(),
    "fading": estimators.hybrid(path_until=0.5),
    "linear": kinds.linear(),
    "regression": kinds.regression(),
    "regression+path": kinds.with_path(kinds.regression(), 0.5),
    "sized+path": kinds.with_path(kinds.sized(), 0.5),
    "exact_k+path": kinds.with_path(estimators.exact_k(), 0.5),
    "mixed": kinds.mixed(1.0),
    "mixed_fading": kinds.mixed(0.5),
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


def problem_of(kind: str, seed: int) -> tuple[Any, Any, Any, int, int]:
    """`(x, y, validation, n, K)`."""
    given: dict[str, Any] = {"num_validation": 120, "num_candidates": 240}
    if kind == "clean":
        given["num_validation"] = 0
    if kind == "noisy":
        given |= {"noise_kind": "symmetric", "noise_rate": 0.5}
    if kind == "unbalanced":
        given |= {"num_candidates": 1200, "imbalance_factor": 50.0}
    if kind == "inputs":
        given = {"num_validation": 100, "num_candidates": 100}
    found = data.make_problem(data.load("bundled", name="mnist"), seed=seed, **given)

    def small(x):
        return x.reshape(-1, 14, 2, 14, 2).mean((2, 4)).reshape(-1, 196)

    x, y, validation = small(found.x), found.y, found.validation
    rows = np.random.default_rng(seed).permutation(len(y))[:240]  # the classes come in no order
    x, y, others = x[rows], y[rows], validation and small(validation[0])
    if kind == "inputs":
        return x, y, (others, validation[1]) if validation else None, 196, 30
    mean = x.mean(0)
    axes = np.linalg.svd(x - mean, full_matrices=False)[2][:COMPONENTS].T
    scale = ((x - mean) @ axes)[:, 0].std() / 2
    x = (x - mean) @ axes / scale
    if validation is not None:
        validation = (others - mean) @ axes / scale, validation[1]
    return x, y, validation, 240, 24


def objective_of(kind: str, seed: int, path: bool, outer_loss: str = "brier") -> Any:
    """The objective by networks of a problem."""
    x, y, validation, n, _ = problem_of(kind, seed)
    is_inputs = kind == "inputs"
    return network_objective(
        as_model(nets.MLP(num_classes=10, hidden=(20,))),
        jnp.asarray(x, jnp.float32),
        jnp.asarray(y),
        Inputs(jnp.arange(n)) if is_inputs else Samples((ROWS,)),
        Network(Inner(steps=30), outer_loss=outer_loss),
        validation=validation and (jnp.asarray(validation[0], jnp.float32), validation[1]),
        path=path,
        num_masks=MASKS,
        compute=Compute(mask_chunk=MASKS, outer_chunk=256),
    )


_PROGRAMS: dict[Any, Any] = {}


def descend(
    kind: str, seeds: Sequence[int], settings: Settings, outer_loss: str = "brier"
) -> np.ndarray:
    """`[S, T, 3]`, the outer loss of each seed at the start and after every `LOOK` steps.

    The mean over masks from p(m | s), over masks of exactly K, and of the K largest of s.
    """
    _, _, _, n, size = problem_of(kind, 0)
    path = settings.gradient_estimator().needs_path
    shape = (kind in ("noisy", "unbalanced"), kind == "inputs", settings, outer_loss, len(seeds))
    made, judges = (
        [objective_of(kind, seed, has_path, outer_loss) for seed in seeds]
        for has_path in (path, False)
    )
    if shape not in _PROGRAMS:
        structures = [jax.tree.structure(one[0]) for one in (made, judges)]

        def one(leaves, judge_leaves, key):
            evaluate = jax.tree.unflatten(structures[0], leaves)
            judge = jax.tree.unflatten(structures[1], judge_leaves)
            look_key, draw_key, key = jax.random.split(key, 3)

            def look(s):
                free = masks.sample_masks(draw_key, s, LOOKS_AT)
                fixed = masks.sample_masks_of_size(draw_key, s, LOOKS_AT)
                best = jnp.zeros(n).at[jax.lax.top_k(s, size)[1]].set(1.0)
                many = jax.random.split(look_key, LOOKS_AT // 2)
                ends = jax.lax.map(lambda key: judge(key, best[None]).losses[0], many)
                losses = [judge(look_key, drawn).losses for drawn in (free, fixed)]
                return jnp.stack([jnp.mean(found) for found in (*losses, ends)])

            def advance(state, _):
                def take(state, _):
                    return loop.step(state, evaluate, settings)[0], None

                state, _ = jax.lax.scan(take, state, length=LOOK)
                return state, look(state.probabilities)

            state = loop.init(key, n, size, settings)
            before = look(state.probabilities)
            _, after = jax.lax.scan(advance, state, length=settings.outer_steps // LOOK)
            return jnp.concatenate([before[None], after])

        _PROGRAMS[shape] = jax.jit(jax.vmap(one))

    def stacked(objectives):
        return [jnp.stack(same) for same in zip(*map(jax.tree.leaves, objectives), strict=True)]

    keys = jax.vmap(jax.random.key)(jnp.asarray(seeds))
    return np.asarray(_PROGRAMS[shape](stacked(made), stacked(judges), keys))


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
        as_model(nets.MLP(num_classes=10, hidden=(20,))),
        jnp.asarray(x[rows], jnp.float32),
        jnp.asarray(y[rows]),
        Samples((n,)),
        Network(Inner(steps=30), outer_loss="brier"),
        validation=(jnp.asarray(validation[0], jnp.float32), jnp.asarray(validation[1])),
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
        own = np.asarray(jax.grad(of_fixed_size if name == "exact_k" else expected)(s))
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
    """`(key, function)` of all that is measured."""
    only = _ONLY.value or list(ESTIMATORS)

    def run(name, kind, trainings=TRAININGS, optimizer="adam", rate=0.05, loss="brier"):
        settings = settings_of(name, trainings, optimizer, rate)
        return functools.partial(descend, kind, seeds, settings, loss)

    if part in ("all", "exact"):
        for seed in seeds[:2]:
            yield ("exact", seed), functools.partial(exact, seed)
    if part in ("all", "network"):
        for name, kind in itertools.product(only, PROBLEMS):
            yield ("network", name, kind), run(name, kind)
    if part in ("all", "losses"):
        for name, loss, kind in itertools.product(only, ("cross_entropy", "error_rate"), PROBLEMS):
            if loss != "error_rate" or not ESTIMATORS[name].needs_path:
                yield ("losses", name, kind, loss), run(name, kind, loss=loss)
    if part in ("all", "budgets"):
        for name, trainings, kind in itertools.product(only, (1000,), PROBLEMS):
            rate = 0.05 * TRAININGS / trainings  # s goes equally far
            yield ("budgets", name, kind, trainings), run(name, kind, trainings, rate=rate)
    if part in ("all", "optimizers"):
        rates = {"adam": (0.02, 0.05, 0.1), "normalized_sgd": (0.2, 0.5, 1.0)}
        rates |= {"natural": (0.02, 0.05, 0.1), "mirror": (0.1, 0.3, 1.0)}
        for name, optimizer in itertools.product(only, rates):
            for rate, kind in itertools.product(rates[optimizer], ("clean", "noisy")):
                key = ("optimizers", name, kind, optimizer, rate)
                yield key, run(name, kind, TRAININGS, optimizer, rate)


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
            runs[name] = found if key[0] == "exact" else np.round(found, 5).tolist()
            measure.write(_OUT.value, "estimators", {"seeds": _SEEDS.value, "runs": runs})
            print(name, "" if key[0] == "exact" else found[:, -1].mean(0), file=sys.stderr)


if __name__ == "__main__":
    app.run(main)
