"""The outer update beside a sort: what the outer loop itself costs, from 1e3 to 1e7 candidates.

    python -m benchmarks.outer --out=benchmarks/results/outer.json

`project` is compared with `numpy.sort` of the same array. "sample, score, update" is one compiled
function: M masks drawn, the policy gradient from given losses, and an Adam step with clipping, all
but the projection. "step" is the outer loop's whole step with an objective that costs nothing.
"""

import sys
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from absl import app, flags

import pbcs_jax as pbcs
from benchmarks import measure
from benchmarks.pages import speed
from pbcs_jax.outer import loop
from pbcs_jax.outer.base import Evaluation
from pbcs_jax.outer.settings import Settings

_OUT = flags.DEFINE_string("out", "benchmarks/results/outer.json", "Where the JSON goes.")
_LARGEST = flags.DEFINE_integer("largest", 10**7, "Largest number of candidates.", lower_bound=1000)
_REPEATS = flags.DEFINE_integer("repeats", 9, "Interleaved timed calls of each.", lower_bound=5)
_MASKS = 8


def measure_one(n: int, repeats: int) -> dict[str, Any]:
    """Milliseconds of each part for n candidates, a hundredth of which is to be chosen."""
    size = n / 100
    # What a projection gets to see: probabilities that an optimiser has moved.
    rng = np.random.default_rng(0)
    z = rng.exponential(0.01, n).astype(np.float32) + rng.normal(0, 0.005, n).astype(np.float32)
    settings = Settings(num_masks=_MASKS)
    state = loop.init(jax.random.key(0), n, size, settings, jnp.asarray(z))
    losses = jnp.asarray(rng.random(_MASKS), jnp.float32)

    @partial(jax.jit, donate_argnums=(2, 3))
    def move(key, losses, s, opt_state):
        # The barrier stands for the objective: it needs the masks themselves.
        masks = jax.lax.optimization_barrier(pbcs.sample_masks(key, s, _MASKS))
        gradient = pbcs.policy_gradient(losses, masks, s)
        updates, opt_state = settings.transformation().update(gradient, opt_state, s)
        return optax.apply_updates(s, updates), opt_state

    moving = [jnp.copy(state.probabilities), jax.tree.map(jnp.copy, state.opt_state)]

    def move_on():  # in place, as the outer loop does it
        moving[:] = move(state.key, losses, *moving)
        return moving

    def free(key, masks):
        return Evaluation(masks[:, 0], jnp.ones(_MASKS, bool))

    project = jax.jit(pbcs.project)
    moved = jnp.asarray(z)
    median, _ = measure.medians(
        {
            "sort": lambda: np.sort(z),
            "project": lambda: project(moved, size),
            "move": move_on,
            "step": lambda: loop.step(state, free, settings),
        },
        repeats,
    )
    found = np.asarray(project(moved, size), np.float64).sum()
    return {
        "n": n,
        "milliseconds": {name: 1e3 * value for name, value in median.items()},
        "project_over_sort": median["project"] / median["sort"],
        "move_over_project": median["move"] / median["project"],
        "relative_error_of_the_sum": abs(found - size) / size,
    }


def main(argv: list[str]) -> None:
    if len(argv) > 1:
        raise app.UsageError(f"unexpected arguments {argv[1:]}: use --out, --largest, --repeats.")
    results = []
    n = 1000
    while n <= _LARGEST.value:
        results.append(measure_one(n, _REPEATS.value))
        print(f"n = {n}: done", file=sys.stderr)
        n *= 10
    print(speed.outer({"rows": results}))
    measure.write(
        _OUT.value, "outer", {"masks": _MASKS, "repeats": _REPEATS.value, "rows": results}
    )


if __name__ == "__main__":
    app.run(main)
