"""The outer loop: probabilities in, better probabilities out. Data, models and
devices are hidden from it.

It sees one function, `evaluate(key, masks [M, n]) -> Evaluation`. One step draws M masks, evaluates
them, estimates the gradient of the expected outer loss, lets an optax optimiser move s, and
projects onto C.
"""

import itertools
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec
from jax.tree_util import Partial

from pbcs_jax import processes, progress
from pbcs_jax.errors import UserError, check_number
from pbcs_jax.outer import masks, projection
from pbcs_jax.outer.base import Evaluation, Objective, OnHost
from pbcs_jax.outer.settings import Settings

Metrics = dict[str, Any]

HISTOGRAM_BINS = 20
FORGET_ALL = 10
"""Selections after which JAX's caches are emptied."""
_forgotten = itertools.count(1)


class DivergenceError(FloatingPointError):
    """No model of an outer step was usable."""


class State(NamedTuple):
    """The outer loop's state: all that a run needs to continue from here.

    Attributes:
      probabilities: `[n]`, s.
      opt_state: of the optimiser.
      step: int32, updates made.
      size: float32, K.
      key: PRNG key.
      estimator_state: of the estimator; `()` if it has none.
    """

    probabilities: jax.Array
    opt_state: Any
    step: jax.Array
    size: jax.Array
    key: jax.Array
    estimator_state: Any = ()


def check_size(n: int, size: float) -> None:
    """Raises unless K is a whole number from 1 to n, the number of candidates."""
    check_number("size", size, least=1, most=n, whole=True)


def init(
    key: jax.Array,
    n: int,
    size: float,
    settings: Settings = Settings(),  # noqa: B008 (frozen)
    probabilities: jax.Array | None = None,
) -> State:
    """The state before the first step: s = K/n, or the probabilities given.

    Args:
      key: PRNG key, consumed.
      n: number of candidates.
      size: K.
      settings: the outer loop's.
      probabilities: `[n]`, a start other than K/n; projected onto C.

    >>> state = init(jax.random.key(0), n=4, size=1)
    >>> state.probabilities.tolist()
    [0.25, 0.25, 0.25, 0.25]
    """
    check_number("size", size, least=0, most=n, above=True)
    start = settings.largest_size(n, size)
    if probabilities is None:
        probabilities = jnp.full((n,), start / n, jnp.float32)
    else:
        probabilities = projection.project(_given(probabilities, n), start)
    return State(
        probabilities=probabilities,
        opt_state=settings.transformation().init(probabilities),
        step=jnp.zeros((), jnp.int32),
        size=jnp.asarray(size, jnp.float32),
        key=key,
        estimator_state=settings.gradient_estimator().init(n),
    )


def _given(probabilities: Any, n: int) -> jax.Array:
    """Probabilities of the user's own, checked."""
    try:
        given = np.asarray(probabilities, np.float32)
    except (TypeError, ValueError):
        given = np.zeros((), np.float32)
    if given.shape != (n,):
        raise UserError(
            f"start has shape {given.shape}: give {n} probabilities, the state of an earlier run, "
            "or None"
        )
    bad = np.flatnonzero(~((given >= 0) & (given <= 1)))
    if len(bad):
        raise UserError(f"start is {given[bad[0]]} at {bad[0]}: give probabilities from 0 to 1")
    return jnp.asarray(given)


def step(
    state: State,
    evaluate: Objective,
    settings: Settings = Settings(),  # noqa: B008 (frozen)
) -> tuple[State, Metrics]:
    """One outer step, compiled.

    Args:
      state: from `init` or the last `step`.
      evaluate: `(key, masks [M, n]) -> Evaluation`, traceable. Arrays that it holds are compiled in
        as constants unless it is a `jax.tree_util.Partial`; keep the same object from step to step.
      settings: the outer loop's.

    Returns:
      The new state and the metrics of the step. With no usable mask the state stays as it is, and
      outside of `jit` a `DivergenceError` is raised.

    >>> from pbcs_jax import Evaluation
    >>> wanted = jnp.array([1.0, 0.0, 0.0])
    >>> def evaluate(key, masks):
    ...     losses = jnp.sum((masks - wanted) ** 2, axis=-1)
    ...     return Evaluation(losses, jnp.isfinite(losses))
    >>> state = init(jax.random.key(0), n=3, size=1)
    >>> for _ in range(50):
    ...     state, metrics = step(state, evaluate)
    >>> state.probabilities.round(2).tolist()
    [1.0, 0.0, 0.0]
    """
    state, placed, everywhere = _place(state, evaluate)
    state, metrics = _compiled_step(state, placed, settings, everywhere)
    if not isinstance(metrics["num_ok"], jax.core.Tracer):
        _check_alive([metrics], settings)
    return state, metrics


def run(
    state: State,
    evaluate: Objective | OnHost,
    settings: Settings = Settings(),  # noqa: B008 (frozen)
    callback: Callable[[State, list[Metrics]], None] | None = None,
    callback_every: int = 10,
) -> tuple[State, dict[str, np.ndarray]]:
    """The outer steps that are left, to `settings.outer_steps`.

    Steps are queued without waiting for each other; metrics come to the host `callback_every` steps
    at a time.

    Args:
      state: from `init`, or a checkpoint of an earlier run.
      evaluate: see `step`.
      settings: the outer loop's.
      callback: called with the state and the metrics of the steps since the last call; both may be
        kept. At a KeyboardInterrupt it is called once more.
      callback_every: outer steps between two calls.

    Returns:
      The final state, and the metrics of these steps, each `[steps, ...]`.
    """
    state, placed, everywhere = _place(state, evaluate)
    state = jax.tree.map(jnp.copy, state)  # the caller's own is not donated
    take_step: Any = _step_on_host
    if not isinstance(placed, OnHost):
        take_step = partial(_donating_step, everywhere=everywhere)
        if everywhere is not None and processes.span(everywhere.mesh):
            take_step = _compiled_together(state, placed, settings, everywhere)
    # CPU devices share their threads: exchanges of several steps at once can leave each other none.
    waits = jax.default_backend() == "cpu" and len(state.probabilities.devices()) > 1
    history: list[Metrics] = []
    pending: list[Metrics] = []
    first = int(state.step)

    def report() -> None:
        nonlocal pending
        new, pending = jax.device_get(pending), []
        _check_alive(new, settings)
        if callback is not None:
            callback(jax.tree.map(jnp.copy, state), new)  # the next step donates ours
        history.extend(new)

    try:
        with progress.steps("Compiling", settings.outer_steps, first) as show:
            for done in range(first + 1, settings.outer_steps + 1):
                state, metrics = take_step(state, placed, settings)
                if waits:
                    jax.block_until_ready(metrics)
                pending.append(metrics)
                if done % callback_every == 0 or done == settings.outer_steps:
                    report()
                show(done, partial(_loss_text, metrics), "Selecting")
    except KeyboardInterrupt:
        # Steps since the last call are kept too, unless the state is just being donated.
        whole = pending and not state.probabilities.is_deleted()
        if whole and int(state.step) == first + len(history) + len(pending):
            report()
        raise
    names = history[0] if history else {}
    return state, {name: np.stack([m[name] for m in history]) for name in names}


def _loss_text(metrics: Metrics) -> str:
    return f"loss {float(metrics['outer_loss']):.4g}"


def _step(
    state: State,
    evaluate: Objective,
    settings: Settings,
    everywhere: NamedSharding | None = None,
) -> tuple[State, Metrics]:
    next_key, evaluate_key, drawn = _draw(state, settings)
    evaluation = evaluate(evaluate_key, drawn)
    return _update(state, next_key, drawn, evaluation, settings, everywhere)


def _compiled_together(
    state: State, placed: Partial, settings: Settings, everywhere: NamedSharding
) -> Callable[[State, Partial, Settings], tuple[State, Metrics]]:
    """The step, when all processes have compiled it.

    CPU processes connect at the first exchange, and give up after 30 seconds. One that shares its
    cores with other programs can take longer than that to compile what another has ready.
    """
    with_settings = {"settings": settings, "everywhere": everywhere}
    compiled = _donating_step.lower(state, placed, **with_settings).compile()
    processes.gather("compiled")
    return lambda state, placed, _: compiled(state, placed)


def _step_on_host(state: State, objective: OnHost, settings: Settings) -> tuple[State, Metrics]:
    """The same in two programs, and between them the objective, which is none."""
    next_key, evaluate_key, drawn = _compiled_draw(state, settings)
    evaluation = objective.evaluate(evaluate_key, drawn)
    return _donating_update(state, next_key, drawn, evaluation, settings)


def _draw(state: State, settings: Settings) -> tuple[jax.Array, jax.Array, jax.Array]:
    """The next key, the objective's, and the masks."""
    next_key, mask_key, evaluate_key = jax.random.split(state.key, 3)
    estimator = settings.gradient_estimator()
    drawn = estimator.sample(mask_key, state.probabilities, settings.num_masks)
    return next_key, evaluate_key, drawn


def _update(
    state: State,
    next_key: jax.Array,
    drawn: jax.Array,
    evaluation: Evaluation,
    settings: Settings,
    everywhere: NamedSharding | None = None,
) -> tuple[State, Metrics]:
    """What the masks and their evaluation make of the state.

    Args:
      state: before the step.
      next_key: of the state after it.
      drawn: `[M, n]`, the masks.
      evaluation: of these.
      settings: the outer loop's.
      everywhere: all devices, where there are several.
    """
    estimator = settings.gradient_estimator()
    s = state.probabilities
    progress = state.step / max(settings.outer_steps, 1)
    if estimator.needs_path and evaluation.path_gradients is None:
        raise UserError(
            "this estimator needs path gradients and the objective gives none: "
            "use the estimator 'pge', or an objective with path_steps above 0"
        )
    if estimator.needs_differences and evaluation.differences is None:
        raise UserError(
            "this estimator needs differences and the objective gives none: use the estimator "
            "'pge', or the kernel of samples with the outer loss 'squared_error'"
        )
    used = drawn if evaluation.masks is None else evaluation.masks
    ok = evaluation.ok & jnp.isfinite(evaluation.losses)
    if everywhere is not None:
        # Path gradients may be spread over processes, each with those of its own masks. What masks
        # count is known to all: else it would be spread too, and exchanged in small pieces.
        ok = jax.lax.with_sharding_constraint(ok, everywhere)
    gradient, estimator_state = estimator.gradient(
        evaluation._replace(ok=ok), used, s, progress, state.estimator_state
    )
    updates, opt_state = settings.transformation().update(gradient, state.opt_state, s)
    size = settings.size_at((state.step + 1) / max(settings.outer_steps, 1), state.size)
    if settings.settle:
        updates = updates + settings.growth_at(progress) * s
    moved = (projection.project(s + updates, size), opt_state, estimator_state)
    alive = jnp.any(ok) & jnp.all(jnp.isfinite(gradient))
    s, opt_state, estimator_state = jax.tree.map(
        lambda new, old: jnp.where(alive, new, old),
        moved,
        (s, state.opt_state, state.estimator_state),
    )
    num_ok = jnp.sum(ok)

    def mean(values):
        return jnp.sum(jnp.where(ok, values, 0)) / jnp.maximum(num_ok, 1)

    loss = mean(evaluation.losses)
    bins = jnp.clip((s * HISTOGRAM_BINS).astype(jnp.int32), 0, HISTOGRAM_BINS - 1)
    metrics = {
        "outer_loss": loss,
        "outer_loss_std": jnp.sqrt(mean((evaluation.losses - loss) ** 2)),
        "gradient_norm": jnp.linalg.norm(gradient),
        "size": jnp.sum(s),
        "unsettled": jnp.sum(s * (1 - s)) / size,
        "decided": jnp.mean(~masks.is_random(s)),
        "num_ok": jnp.where(alive, num_ok, 0),
        "overflow": jnp.sum((drawn >= 0.5) & (used == 0)) if used is not drawn else jnp.array(0),
        "histogram": jnp.zeros((HISTOGRAM_BINS,), jnp.int32).at[bins].add(1),
    }
    metrics |= {name: mean(values) for name, values in (evaluation.metrics or {}).items()}
    return State(s, opt_state, state.step + 1, state.size, next_key, estimator_state), metrics


def _place(
    state: State, evaluate: Objective | OnHost
) -> tuple[State, Partial | OnHost, NamedSharding | None]:
    """The objective as a pytree, the state where its arrays live, and where that is, if known.

    There the step's results will be too: were the first state elsewhere, the second step would be
    compiled anew.
    """
    if isinstance(evaluate, OnHost):
        return processes.place(state, evaluate.sharding), evaluate, evaluate.sharding
    if not isinstance(evaluate, Partial):
        return state, Partial(evaluate), None
    for leaf in jax.tree.leaves(evaluate):
        sharding = getattr(leaf, "sharding", None)
        if isinstance(sharding, NamedSharding) and sharding.is_fully_replicated:
            everywhere = NamedSharding(sharding.mesh, PartitionSpec())
            return processes.place(state, everywhere), evaluate, everywhere
    return state, evaluate, None


_STATIC = ("settings", "everywhere")
_compiled_step = jax.jit(_step, static_argnames=_STATIC)
_donating_step = jax.jit(_step, static_argnames=_STATIC, donate_argnames="state")
_compiled_draw = jax.jit(_draw, static_argnames="settings")
_donating_update = jax.jit(_update, static_argnames="settings", donate_argnames="state")


def forget() -> None:
    """Frees the programs of `run`, for whoever made an objective that is not used again.

    They would be kept as long as the process lives, and after a few hundred selections it would
    have no room for more. JAX also keeps what it traced, 0.1 to 1 MB per selection, in caches that
    can be emptied only all at once, those of the user's own functions with them.
    """
    for program in (_donating_step, _compiled_draw, _donating_update):
        program.clear_cache()
    if next(_forgotten) % FORGET_ALL == 0:
        jax.clear_caches()


def _check_alive(metrics: list[Metrics], settings: Settings) -> None:
    if any(int(m["num_ok"]) == 0 for m in metrics):
        raise DivergenceError(
            f"all {settings.num_masks} models of an outer step diverged or gave NaN: "
            "lower inner.learning_rate, or look for bad values in the data"
        )
