"""The inner loop: train one model on one packed coreset. Everything here is made to be `vmap`ped.

A packed coreset is `capacity` rows of data, each with a weight: 1 for a chosen sample, 0 for
padding, and between them for a relaxed mask. The training loss is sum_i w_i loss_i / sum_i w_i, so
padding is invisible.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from pbcs_jax.errors import check_known, check_number, check_switch
from pbcs_jax.inner import span
from pbcs_jax.inner.batches import Coreset, epochs
from pbcs_jax.inner.losses import LossFn
from pbcs_jax.nets.model import Model, Variables
from pbcs_jax.outer import optimizers

# A model whose training loss ends this many times above where it began has diverged.
DIVERGED = 2.0
DTYPES = ("float32", "bfloat16")


@dataclasses.dataclass(frozen=True)
class Inner:
    """How each model is trained.

    Attributes:
      steps: optimiser steps.
      optimizer: 'sgd', 'adam' or any optax optimiser (which then brings its own learning rate).
      learning_rate: at the start.
      momentum: of 'sgd'.
      weight_decay: see `optimizers.create`.
      schedule: 'cosine' (to 0 at the last step) or 'constant'.
      batch_size: rows per step, reshuffled each epoch; 0 is the whole coreset.
      tolerance: training stops when the gradient's norm is at most this; 0 never stops early.
      shared_init: all masks of an outer step start from the same weights (common random numbers).
      dtype: 'float32', or 'bfloat16': each step goes through the network in it, with a copy of the
        weights, which themselves stay in float32, as do the loss, the optimiser and the scoring.
    """

    steps: int = 100
    optimizer: str | optax.GradientTransformation = "sgd"
    learning_rate: float = 0.1
    momentum: float = 0.9
    weight_decay: float = 0.0
    schedule: str = "cosine"
    batch_size: int = 0
    tolerance: float = 0.0
    shared_init: bool = True
    dtype: str = "float32"

    def __post_init__(self):
        check_known("inner.dtype", self.dtype, DTYPES)
        for name in ("steps", "batch_size"):
            check_number(f"inner.{name}", getattr(self, name), least=0, most=2**31 - 1, whole=True)
        for name in ("tolerance", "weight_decay"):
            check_number(f"inner.{name}", getattr(self, name), least=0)
        check_switch("inner.shared_init", self.shared_init)
        check_number("inner.momentum", self.momentum, least=0, most=1, below=True)
        self.transformation()  # a wrong name or rate raises here, not in the middle of a trace

    def transformation(self) -> optax.GradientTransformation:
        """The optax optimiser that this describes."""
        return optimizers.create(
            self.optimizer,
            self.learning_rate,
            self.steps,
            schedule=self.schedule,
            momentum=self.momentum,
            weight_decay=self.weight_decay,
        )


class Trained(NamedTuple):
    """A trained model.

    Attributes:
      variables: its parameters and state.
      loss: its last training loss.
      steps: optimiser steps taken.
      ok: False when it diverged or is not finite.
    """

    variables: Any
    loss: jax.Array
    steps: jax.Array
    ok: jax.Array


class Tail(NamedTuple):
    """The last steps of a training run, differentiated.

    Attributes:
      variables: before each of the h steps, leaves `[h, ...]`.
      cotangents: of the training gradient fed to the optimiser at each, leaves `[h, ...]`.
      weight: sum of the weights in each step's batch, `[h]`.
    """

    variables: Any
    cotangents: Any
    weight: jax.Array


class Progress(NamedTuple):
    """A training run between two steps: all that the next step needs."""

    variables: Any
    opt_state: Any
    step: jax.Array
    first_loss: jax.Array
    loss: jax.Array
    grad_norm: jax.Array
    order: jax.Array  # of the rows in this epoch; empty where a batch is all of them


Penalty = Callable[[jax.Array, Variables], tuple[jax.Array, Variables]]
"""`(key, variables) -> (loss, variables)`, a further loss of every step, such as a replay's."""


def train(
    model: Model,
    loss_fn: LossFn,
    settings: Inner,
    key: jax.Array,
    variables: Any,
    coreset: Coreset,
    penalty: Penalty | None = None,
) -> Trained:
    """Trains `model` from `variables` on one coreset.

    Args:
      model: see `nets.model.as_model`.
      loss_fn: `(outputs [B, ...], targets [B, ...]) -> [B]`.
      settings: how.
      key: PRNG key for mini-batches and dropout, consumed.
      variables: the initialisation.
      coreset: the packed data.
      penalty: a further loss of every step.
    """
    given = model, loss_fn, settings, key, variables, coreset, penalty
    return finish(_train_for(settings.steps, *given))


def train_and_differentiate(
    model: Model,
    loss_fn: LossFn,
    settings: Inner,
    key: jax.Array,
    variables: Any,
    coreset: Coreset,
    outer: Callable[[Any], tuple[jax.Array, Any]],
    path_steps: int,
) -> tuple[Trained, tuple[jax.Array, Any], Tail]:
    """`train`, then the outer loss, and its gradient through the last `path_steps` steps.

    The last steps are repeated with a nudge added to each step's training gradient; reverse mode
    gives the outer loss's derivative with respect to the nudges. Whatever changes the training
    gradient of a step, such as one more sample, changes the outer loss by its product with that:
    see `objectives.network`. Works for every optax optimiser, and costs no pass over the
    candidates.

    Args:
      outer: `variables -> (outer loss, anything else)`.
      path_steps: h, at least 1.

    Returns:
      The trained model, what `outer` gave, and the `Tail`.
    """
    steps = max(settings.steps - path_steps, 0)
    before = _train_for(steps, model, loss_fn, settings, key, variables, coreset)
    # What candidates outside of the coreset would change lies outside of its span: in full here.
    step = _make_step(model, loss_fn, settings, key, coreset)

    def last_steps(nudges):
        def body(progress, nudge):
            after, weight = step(progress, nudge)
            return after, (progress.variables, weight)

        after, (path, weight) = jax.lax.scan(body, before, nudges)
        return after.variables, (after, path, weight)

    nudges = jax.tree.map(
        lambda leaf: jnp.zeros((path_steps, *leaf.shape), leaf.dtype), before.variables["params"]
    )
    end, pull_back, (after, path, weight) = jax.vjp(last_steps, nudges, has_aux=True)
    value, slope = jax.value_and_grad(outer, has_aux=True)(end)
    (cotangents,) = pull_back(slope)
    return finish(after), value, Tail(path, cotangents, weight)


def _begin(settings: Inner, variables: Any, capacity: int) -> Progress:
    opt_state = settings.transformation().init(variables["params"])
    unknown = jnp.full((), jnp.inf)
    order = jnp.arange(capacity if settings.batch_size else 0, dtype=jnp.int32)
    step = jnp.zeros((), jnp.int32)
    return Progress(variables, opt_state, step, unknown, unknown, unknown, order)


def finish(progress: Progress) -> Trained:
    """The model of a training run that has ended, in full weights."""
    # With no steps at all there is no training loss, and nothing that could have diverged.
    untrained = progress.step == 0
    converged = jnp.isfinite(progress.loss) & (progress.loss <= DIVERGED * progress.first_loss)
    return Trained(progress.variables, progress.loss, progress.step, untrained | converged)


def _train_for(
    steps, model, loss_fn, settings: Inner, key, variables, coreset, penalty=None
) -> Progress:
    """The first `steps` steps."""
    start, step, back = prepare(model, loss_fn, settings, key, variables, coreset, penalty)
    if not settings.tolerance:
        end = jax.lax.scan(lambda p, _: (step(p)[0], None), start, None, length=steps)[0]
        return back(end)
    going = lambda progress: is_unfinished(settings, progress, steps)  # noqa: E731
    return back(jax.lax.while_loop(going, lambda p: step(p)[0], start))


def prepare(
    model, loss_fn, settings: Inner, key, variables, coreset, penalty=None
) -> tuple[Progress, Callable[..., tuple[Progress, jax.Array]], Callable[[Progress], Progress]]:
    """The start of `train`, one step of it, and what brings progress to full weights at the end.

    In between it is in the span of the coreset, where that is less work.
    """
    start = _begin(settings, variables, coreset.weights.shape[0])
    back = lambda progress: progress  # noqa: E731
    linear = settings.optimizer == "sgd" and not settings.weight_decay
    if linear and penalty is None and span.is_smaller(model, coreset.x):
        start, x, back = span.enter(model, settings.transformation(), start, coreset.x)
        coreset = coreset._replace(x=x)
    return start, _make_step(model, loss_fn, settings, key, coreset, penalty), back


def is_unfinished(settings: Inner, progress: Progress, steps: int | jax.Array) -> jax.Array:
    """Whether a step is left of `steps`: a gradient within the tolerance, or NaN, is the last."""
    more = progress.step < steps
    return more & (progress.grad_norm > settings.tolerance) if settings.tolerance else more


def _make_step(
    model: Model,
    loss_fn: LossFn,
    settings: Inner,
    key: jax.Array,
    coreset: Coreset,
    penalty: Penalty | None = None,
) -> Callable[..., tuple[Progress, jax.Array]]:
    """One optimiser step `(progress, nudge=None) -> (progress, sum of the batch's weights)`."""
    optimizer = settings.transformation()
    batch_key, dropout_key = jax.random.split(key)
    if settings.batch_size:
        take_batch = epochs(batch_key, coreset, settings.batch_size)
    else:
        take_batch = lambda step, order: (coreset, order)  # noqa: E731

    def apply(params, state, x, **how):
        """In the type that is asked for, from and to the types that all else has."""
        if settings.dtype == "float32":
            return model.apply({"params": params, "state": state}, x, train=True, **how)
        params, x = _cast((params, x), settings.dtype)
        outputs, after = model.apply({"params": params, "state": state}, x, train=True, **how)
        kept = jax.tree.map(lambda new, old: new.astype(old.dtype), after["state"], state)
        return _cast(outputs, "float32"), {**after, "state": kept}

    def mean_loss(params, state, batch, rng):
        outputs, variables = apply(params, state, batch.x, key=rng, mask=batch.weights > 0)
        losses = jnp.where(batch.weights > 0, loss_fn(outputs, batch.y), 0)
        total = jnp.sum(batch.weights)
        loss = batch.weights @ losses / jnp.maximum(total, 1e-6)
        if penalty is not None:
            more, variables = penalty(jax.random.fold_in(rng, 1), variables)
            loss = loss + more
        return loss, (variables["state"], total)

    def step(progress, nudge=None):
        batch, order = take_batch(progress.step, progress.order)
        rng = jax.random.fold_in(dropout_key, progress.step)
        params, state = progress.variables["params"], progress.variables["state"]
        (loss, (state, total)), gradient = jax.value_and_grad(mean_loss, has_aux=True)(
            params, state, batch, rng
        )
        if nudge is not None:
            gradient = jax.tree.map(jnp.add, gradient, nudge)
        updates, opt_state = optimizer.update(gradient, progress.opt_state, params)
        variables = {"params": optax.apply_updates(params, updates), "state": state}
        first = jnp.where(progress.step == 0, loss, progress.first_loss)
        # The tail is differentiated, and the norm of a zero gradient has no derivative.
        norm = optax.tree.norm(jax.lax.stop_gradient(gradient))
        return Progress(variables, opt_state, progress.step + 1, first, loss, norm, order), total

    return step


def _cast(tree: Any, dtype: str) -> Any:
    """Floating-point arrays in another type."""
    is_float = lambda leaf: jnp.issubdtype(leaf.dtype, jnp.floating)  # noqa: E731
    return jax.tree.map(lambda leaf: leaf.astype(dtype) if is_float(leaf) else leaf, tree)
