"""Train a network on what each mask chooses, samples or inputs, and score it on the outer data."""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pbcs_jax import processes
from pbcs_jax.choices import Choice, Samples
from pbcs_jax.compute import mesh as mesh_lib
from pbcs_jax.compute.chunks import in_chunks
from pbcs_jax.compute.plan import LARGEST_OUTER_CHUNK, Compute, memory_budget, plan
from pbcs_jax.errors import UserError, check_known, check_number, check_switch, one_line
from pbcs_jax.inner import losses
from pbcs_jax.inner.losses import is_classes
from pbcs_jax.inner.train import Coreset, Inner, train, train_and_differentiate
from pbcs_jax.nets.model import Model, as_model
from pbcs_jax.outer.base import Built, Evaluation, Objective
from pbcs_jax.outer.settings import Settings

OUTER_ON = ("all", "selected")
FOLDS = 5
"""Networks that `predict` trains."""


@dataclasses.dataclass(frozen=True)
class Network:
    """Masks are judged by networks that are trained on what they choose.

    Attributes:
      inner: how each network is trained.
      loss_fn: training loss: 'auto' (cross-entropy of classes, squared error of numbers), another
        name, or a function `(outputs, targets) -> [B]`, whose targets, if floats, stay as they are.
        With 'squared_error' the targets are numbers, even if all of them are whole.
      outer_loss: what the selection minimises: 'auto' (cross-entropy of classes, else the training
        loss), a name ('brier', 'error_rate', ...) or any function of (outputs `[N, ...]`, targets
        `[N, ...]`) that returns a scalar or one value per example. It need not be differentiable
        unless the estimator asks for path gradients.
      scale: whether tables are standardised, see `border.check_data`.
      outer_batch: random outer examples per outer step; 0 is all of them.
      path_steps: last training steps that path gradients go through.
      outer_on: of inputs: networks are scored with 'all' inputs, as published, or with the
        'selected' ones only.
    """

    inner: Inner = Inner()  # noqa: RUF009 (frozen)
    loss_fn: str | losses.LossFn = "auto"
    outer_loss: str | losses.LossFn = "auto"
    outer_batch: int = 0
    path_steps: int = 1
    outer_on: str = "all"
    scale: bool = True

    def __post_init__(self):
        losses.check(self.loss_fn, self.outer_loss)
        if not isinstance(self.inner, Inner):
            raise UserError(f"inner is {self.inner!r}: give an Inner(...)")
        check_known("outer_on", self.outer_on, OUTER_ON)
        check_switch("scale", self.scale)
        check_number("outer_batch", self.outer_batch, least=0, whole=True)
        check_number("path_steps", self.path_steps, least=0, whole=True)

    def loop_settings(self, n: int, size: int, estimator: Any = None) -> Settings:
        """The outer loop's settings where the user sets none."""
        return Settings()

    def best_estimator(self, of_inputs: bool) -> str:
        """What estimator 'auto' stands for, as measured in docs/log/estimators.md.

        >>> Network().best_estimator(False), Network(outer_loss="error_rate").best_estimator(False)
        ('gumbel', 'exact_k')
        """
        has_gradient = isinstance(self.outer_loss, str) and self.outer_loss != "error_rate"
        return "gumbel" if has_gradient and self.path_steps and not of_inputs else "exact_k"

    def build(
        self, key, x, y, model, size, validation, choice: Choice, settings: Settings, compute
    ) -> Built:
        """The objective of these data; nothing improves its coreset afterwards."""
        model = as_model(model)
        evaluate = network_objective(
            model,
            x,
            y,
            choice,
            self,
            validation=validation,
            path=settings.gradient_estimator().needs_path,
            num_masks=settings.num_masks,
            compute=compute,
        )
        if not isinstance(choice, Samples):
            return Built(evaluate)
        return Built(evaluate, predict=lambda key, chosen: predict(key, model, x, y, chosen, self))


class _Data(NamedTuple):
    """What all masks see. `outer` is None where `x` and `y` serve as outer data."""

    choice: Choice
    x: jax.Array
    y: jax.Array
    outer: tuple[jax.Array, jax.Array] | None


def network_objective(
    model: Model,
    x: jax.Array,
    y: jax.Array,
    choice: Choice,
    settings: Network,
    *,
    validation: tuple[jax.Array, jax.Array] | None = None,
    path: bool = False,
    num_masks: int = 8,
    compute: Compute = Compute(),  # noqa: B008 (immutable)
) -> Objective:
    """An `evaluate(key, masks [M, n]) -> Evaluation` that trains M networks side by side.

    Args:
      model: see `nets.model.as_model`.
      x: `[N, ...]` samples; where inputs are chosen, normalised, so that 0 is nothing special.
      y: `[N, ...]` their targets.
      choice: what a mask does to them.
      settings: how networks are trained and scored.
      validation: `(x, y)`, held-out outer data; the samples themselves if None.
      path: whether to give dL/dm.
      num_masks: M, for the memory plan.
      compute: devices and chunks.

    Returns:
      A pytree (`jax.tree_util.Partial`), so that the data are arguments of a compiled step and not
      constants inside it.
    """
    inner, outer_batch = settings.inner, settings.outer_batch
    loss_fn, outer_loss = losses.pair(settings.loss_fn, settings.outer_loss, is_classes(y))
    check_fit(model, x, y, validation, loss_fn, outer_loss)
    path_steps = settings.path_steps if path else 0
    if path_steps:
        losses.check_gradient(outer_loss)
    if path_steps > max(inner.steps, 0):
        raise UserError(
            f"path_steps is {path_steps} but inner.steps is {inner.steps}: it cannot be more"
        )
    mesh = compute.mesh or mesh_lib.mask_mesh()
    chosen_plan = plan(
        model,
        x,
        rows=inner.batch_size or choice.levels[-1] or len(x),
        num_masks=-(-num_masks // mesh.size),
        device=mesh.local_devices[0],
        path_steps=path_steps,
        compute=compute,
        budget=processes.least(mesh, memory_budget(mesh.local_devices[0])),
    )
    data = mesh_lib.replicate(_Data(choice, x, y, validation), mesh)

    def outputs_of(variables, inputs):
        rows_of = lambda rows: model.apply(variables, rows)[0]  # noqa: E731
        return in_chunks(rows_of, inputs, chosen_plan.outer_chunk)

    def evaluate_one(shared, mapped):
        (choice, x, y, _), (outer_x, outer_y), init_key = shared
        own, own_init_key, train_key = mapped

        def outer_of(variables, own):
            seen = choice.show(own, outer_x) if settings.outer_on == "selected" else outer_x
            return score(outer_loss, outputs_of(variables, seen), outer_y)

        variables = model.init(init_key if inner.shared_init else own_init_key, x[:1])
        coreset = choice.training_data(own, x, y)
        arguments = (model, loss_fn, inner, train_key, variables, coreset)
        if not path_steps:
            trained = train(*arguments)
            return *outer_of(trained.variables, own), trained.ok, None
        trained, (loss, metrics), tail = train_and_differentiate(
            *arguments, lambda variables: outer_of(variables, own), path_steps
        )
        slope = choice.path_gradient(
            own,
            x,
            lambda variables, inputs: loss_fn(outputs_of(variables, inputs), y),
            lambda own: outer_of(trained.variables, own)[0],
            tail,
        )
        return loss, metrics, trained.ok, slope

    mapped_over_masks = mesh_lib.map_masks(evaluate_one, mesh, chosen_plan.mask_chunk)

    def evaluate(data: _Data, key: jax.Array, masks: jax.Array) -> Evaluation:
        outer_key, init_key, own_key, train_key = jax.random.split(key, 4)
        own, used, most = data.choice.pack(masks)
        outer = data.outer or (data.x, data.y)
        if 0 < outer_batch < outer[0].shape[0]:
            rows = jax.random.choice(outer_key, outer[0].shape[0], (outer_batch,), replace=False)
            outer = (outer[0][rows], outer[1][rows])
        keys = own_keys(inner, own_key, train_key, masks.shape[0])

        def with_rows(rows):
            mapped = (data.choice.cut(own, rows), *keys)
            return lambda: mapped_over_masks((data, outer, init_key), mapped)

        levels = data.choice.levels
        level = jnp.sum(most > jnp.array(levels[:-1]))
        values, metrics, ok, paths = jax.lax.switch(level, [with_rows(rows) for rows in levels])
        return Evaluation(values, ok & jnp.isfinite(values), paths, used, metrics)

    return jax.tree_util.Partial(evaluate, data)


def predict(
    key: jax.Array, model: Model, x: jax.Array, y: jax.Array, chosen: np.ndarray, settings: Network
) -> np.ndarray:
    """Outputs for all samples of networks trained on the chosen ones.

    There are `FOLDS` networks, each trained without its share of the chosen samples, which it is
    asked for alone; all others get the mean of all networks.

    Args:
      key: PRNG key, consumed.
      model: see `nets.model.as_model`.
      x: `[n, ...]` samples.
      y: `[n]` classes, or `[n, ...]` numbers.
      chosen: `[K]` indices.
      settings: how networks are trained.

    Returns:
      `[n, C]` probabilities of classes, or outputs `[n, ...]`.
    """
    loss_fn, _ = losses.pair(settings.loss_fn, settings.outer_loss, is_classes(y))
    folds = min(FOLDS, len(chosen))
    share = jnp.arange(len(chosen)) % folds
    end = jax.nn.softmax if is_classes(y) else lambda outputs: outputs

    def outputs_of(x, y, one):
        key, fold = one
        init_key, train_key = jax.random.split(key)
        alone = folds == 1  # a single sample cannot be left out
        coreset = Coreset(x[chosen], y[chosen], ((share != fold) | alone).astype(jnp.float32))
        variables = model.init(init_key, x[:1])
        trained = train(model, loss_fn, settings.inner, train_key, variables, coreset)
        rows_of = lambda rows: end(model.apply(trained.variables, rows)[0])  # noqa: E731
        return in_chunks(rows_of, x, LARGEST_OUTER_CHUNK)

    @jax.jit
    def all_outputs(x, y, keys):
        found = jax.lax.map(lambda one: outputs_of(x, y, one), (keys, jnp.arange(folds)))
        return jnp.mean(found, axis=0).at[chosen].set(found[share, chosen])

    return np.asarray(all_outputs(jnp.asarray(x), jnp.asarray(y), jax.random.split(key, folds)))


def score(
    outer_loss: losses.LossFn, outputs: jax.Array, targets: jax.Array
) -> tuple[jax.Array, dict[str, jax.Array]]:
    """The outer loss, and the accuracy where targets are classes."""
    metrics = {}
    if jnp.issubdtype(targets.dtype, jnp.integer):
        metrics["outer_accuracy"] = jnp.mean(jnp.argmax(outputs, -1) == targets)
    return jnp.mean(outer_loss(outputs, targets)), metrics


def check_fit(model: Model, x, y, validation, loss_fn, outer_loss) -> None:
    """Raises unless the model takes such inputs and its outputs suit the targets and losses."""
    rows = 2
    inputs = jax.ShapeDtypeStruct((rows, *np.shape(x)[1:]), jnp.asarray(x[:0]).dtype)
    targets = jax.ShapeDtypeStruct((rows, *np.shape(y)[1:]), jnp.asarray(y[:0]).dtype)
    key = jax.eval_shape(lambda: jax.random.key(0))
    try:
        variables = jax.eval_shape(model.init, key, inputs)
        outputs = jax.eval_shape(lambda v, x: model.apply(v, x)[0], variables, inputs)
    except UserError:
        raise
    except Exception as error:
        raise UserError(
            f"model raises {one_line(error)} for inputs of shape {inputs.shape}: give one that "
            "takes [rows, ...] of this shape"
        ) from error
    shape = getattr(outputs, "shape", None)
    if shape is None or shape[:1] != (rows,):
        raise UserError(
            f"model gives outputs of shape {shape} for {rows} rows: give one that returns one row "
            "of outputs per sample, [rows, ...]"
        )
    if is_classes(y):
        count = 1 + max(
            int(jnp.max(t)) for t in (y, *(() if validation is None else validation[1:]))
        )
        width = shape[-1] if len(shape) == 2 else 1
        if width < count:
            raise UserError(
                f"labels have {count} classes, the model {width} outputs: give a model with at "
                f"least {count} outputs, [rows, {count}]"
            )
    for what, loss, allowed in (
        ("loss_fn", loss_fn, [(rows,)]),
        ("outer_loss", outer_loss, [(rows,), ()]),
    ):
        try:
            values = jax.eval_shape(loss, outputs, targets)
        except Exception as error:
            raise UserError(
                f"{what} raises {one_line(error)} for outputs of shape {shape} and targets of "
                f"shape {targets.shape}: give a model and a loss that fit"
            ) from error
        if getattr(values, "shape", None) not in allowed:
            raise UserError(
                f"{what} has values of shape {getattr(values, 'shape', None)} for {rows} examples: "
                f"return one number per example, [{rows}]" + ", or one in all" * (len(allowed) > 1)
            )


def own_keys(
    inner: Inner, init_key: jax.Array, train_key: jax.Array, num_masks: int
) -> tuple[Any, Any]:
    """Each mask's own keys, for an initialisation that is not shared, and for its training.

    All masks have the same batches and dropout, as long as they share an initialisation.
    """
    trainings = (
        jnp.broadcast_to(train_key, (num_masks,))
        if inner.shared_init
        else jax.random.split(train_key, num_masks)
    )
    return jax.random.split(init_key, num_masks), trainings
