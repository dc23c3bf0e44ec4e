"""`select_coreset` and `select_features`: from data to what is worth keeping, in one call."""

import contextlib
import dataclasses
import itertools
import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np

from pbcs_jax import memory, portfolio, processes
from pbcs_jax import progress as progress_lib
from pbcs_jax.border import Data, check_data, check_key
from pbcs_jax.choices import Choice, Inputs, Samples
from pbcs_jax.choices import inputs as inputs_lib
from pbcs_jax.compute import blas
from pbcs_jax.compute.plan import Compute
from pbcs_jax.errors import UserError, check_known
from pbcs_jax.nets.model import as_model
from pbcs_jax.objectives import InputKernel, Kernel, Network
from pbcs_jax.objectives.network_rows import rows_objective
from pbcs_jax.outer import draw, loop, masks
from pbcs_jax.outer.base import Built
from pbcs_jax.outer.estimators import smoothed
from pbcs_jax.outer.settings import Settings
from pbcs_jax.portfolio import Auto
from pbcs_jax.result import Result, Suspects
from pbcs_jax.rows import Rows, check_rows

SOFTEN = 0.3
"""How far 'kernel_then_network' moves what the kernel found towards K/n."""

Callback = Callable[[loop.State, list[loop.Metrics]], None]
Start = Any
"""Probabilities `[n]`, or a `State`, or None."""
_LOG = logging.getLogger(__name__)


def select_coreset(
    key: Any,
    x: Any,
    y: Any,
    model: Any = None,
    size: int | str | None = None,
    validation: Any = None,
    *,
    objective: str | Auto | Network | Kernel = "auto",
    progress: bool = True,
    compute: Compute = Compute(),  # noqa: B008 (frozen)
    start: Start = None,
    **options: Any,
) -> Result:
    """Learns which `size` of the n candidates to train a model on.

    Args:
      key: PRNG key, or a seed.
      x: `[n, ...]` candidates: NumPy, JAX, torch, pandas, scipy.sparse or lists; or `Rows`, of
        which only the chosen ones are read. Tables are
        standardised (see the option `scale`), and so are pictures of integers, by channel.
      y: `[n]` labels of any kind, one-hot rows, or numbers of a regression, see the option
        `loss_fn`.
      model: a flax.linen module, `nets.from_nnx(...)` of an NNX one, or a pair of pure functions
        `(init(key, x), apply(params, x))`; None will do unless the objective trains one.
      size: K; or 'auto', with the objective 'auto': the smallest coreset that is nearly as good as
        everything, see the option `tolerance`.
      validation: `(x, y)`, clean held-out data for the outer loss; the candidates themselves if
        None.
      objective: how it is chosen. 'auto' or `Auto(...)` spends a time budget on several ways to
        choose, compares what they chose by short trainings of `model` (of small networks if it is
        None), and tells in `Result.choice` which one won. 'network' or `Network(...)` trains
        `model` on every mask; 'kernel' or `Kernel(...)` solves ridge regression on fixed
        embeddings, a hundred times faster; 'kernel_then_network' selects by the kernel, and starts
        the network's search from those probabilities, moved by `SOFTEN` towards K/n.
      progress: whether a terminal or a notebook shows a bar.
      compute: devices and chunks.
      start: probabilities `[n]` to start from, in place of K/n; or the `State` that a callback of
        an earlier run with the same arguments saw, to continue from there.
      **options: any field of `Settings` (`num_masks`, `outer_steps`, `max_ratio`, ...; what is not
        given depends on the objective), of the objective's own record (`loss_fn`, `scale`, ...) or
        of `Compute` (`callback`, ...).

    Returns:
      `Result`, with `indices`, `probabilities`, `history`, `suspects`, `save` and `to_html`.

    >>> from pbcs_jax import Inner
    >>> from pbcs_jax.nets import MLP
    >>> x = jax.random.normal(jax.random.key(0), (40, 5))
    >>> y = ["yes" if row[0] > 0 else "no" for row in x]
    >>> model, inner = MLP(num_classes=2, hidden=(8,)), Inner(steps=5)
    >>> result = select_coreset(1, x, y, size=6, time_budget=1.0)
    >>> result.indices.shape, len(result.choice.judged) > 0
    ((6,), True)
    >>> options = dict(objective="network", inner=inner, outer_steps=2)
    >>> result = select_coreset(1, x, y, model, 6, **options)
    >>> result.indices.shape, result.probabilities.shape, result.history["outer_loss"].shape
    ((6,), (40,), (2,))
    >>> select_coreset(1, x, y, None, 6, objective="kernel").indices.shape
    (6,)
    """
    key = check_key(key)
    if size is None:
        raise UserError(
            "size is None: give K, how many samples to choose, such as size=100, or 'auto'"
        )
    call = _Call(x, y, model, size, validation, start, progress)
    if not isinstance(objective, str) or objective != "kernel_then_network":
        records = {"auto": Auto(), "network": Network(), "kernel": Kernel()}
        asked = _asked(objective, records, options, compute, "kernel_then_network")
        if isinstance(asked.objective, Auto):
            return _choose(key, call, asked)
        if size == "auto":
            raise UserError("size is 'auto', which is for objective='auto': give K")
        return _select(key, call, asked, _samples)
    with progress_lib.shown(progress):
        if not isinstance(start, loop.State):
            _check_model(model)
            both = {k: v for k, v in options.items() if k in ("loss_fn", "max_ratio", "scale")}
            first = _asked("kernel", {"kernel": Kernel()}, both, compute)
            proxy = _select(jax.random.fold_in(key, 1), call, first, _samples)
            call = call._replace(start=soften(proxy.probabilities, len(proxy.indices)))
        asked = _asked("network", {"network": Network()}, options, compute)
        return _select(key, call, asked, _samples)


def select_features(
    key: Any,
    x: Any,
    y: Any,
    model: Any,
    size: int,
    validation: Any = None,
    *,
    groups: Any = None,
    objective: str | Network | InputKernel = "network",
    progress: bool = True,
    compute: Compute = Compute(),  # noqa: B008 (frozen)
    start: Start = None,
    **options: Any,
) -> Result:
    """Learns which `size` inputs (or groups of inputs) of the samples to train `model` on.

    Args:
      key: PRNG key, or a seed.
      x: `[N, ...]` samples, as in `select_coreset`.
      y: `[N]` their targets, as in `select_coreset`.
      model: as in `select_coreset`; None will do for the objective 'kernel'.
      size: K, inputs to choose; with `groups`, groups.
      validation: `(x, y)`, held-out data for the outer loss. Without them 'network' takes the
        samples themselves, 'kernel' leave-one-out.
      groups: the number of each input's group, integers from 0 that broadcast to the shape of a
        sample: patches, one-hot blocks, sensors. Each input is a group of its own if None.
      objective: what masks are judged by. 'network' or `Network(...)` trains `model` on the chosen
        inputs; 'kernel' or `InputKernel(...)` solves kernel ridge regression on them, and judges by
        leave-one-out.
      progress: as in `select_coreset`.
      compute: as in `select_coreset`.
      start: as in `select_coreset`.
      **options: as in `select_coreset`; for pictures there is `smooth` of `Settings`.

    Returns:
      `Result`, of the groups.

    >>> x = jax.random.normal(jax.random.key(0), (60, 8))
    >>> y = (x[:, 2] + x[:, 5] > 0).astype(int)
    >>> result = select_features(1, x, y, None, 2, objective="kernel")
    >>> result.indices.tolist()
    [2, 5]
    """
    records = {"network": Network(), "kernel": InputKernel()}
    asked = _asked(objective, records, options, compute)
    call = _Call(x, y, model, size, validation, start, progress)
    return _select(check_key(key), call, asked, lambda *given: _inputs(groups, *given))


def soften(probabilities: Any, size: float, amount: float = SOFTEN) -> np.ndarray:
    """Probabilities `[n]` moved by `amount` towards K/n, for another selection to start from.

    >>> soften([1.0, 0.0], 1, 0.5).tolist()
    [0.75, 0.25]
    """
    s = np.asarray(probabilities)
    return (1 - amount) * s + amount * size / len(s)


class _Call(NamedTuple):
    """What both public functions are called with."""

    x: Any
    y: Any
    model: Any
    size: Any
    validation: Any
    start: Start
    progress: bool


class _Asked(NamedTuple):
    """The records that the options fill; of the outer loop only what is given."""

    objective: Any
    loop: dict[str, Any]
    compute: Compute


class _Chosen(NamedTuple):
    """What a mask chooses: how many there are, K, what a mask does, how the outer loop goes."""

    n: int
    size: int
    choice: Choice
    settings: Settings
    names: Sequence[str] | None


def _asked(
    objective: Any, known: dict[str, Any], options: dict[str, Any], compute: Compute, *more: str
) -> _Asked:
    """The objective that is given or named, and the options in the records they belong to."""
    record: Any = known.get(objective) if isinstance(objective, str) else objective
    if not any(isinstance(record, type(value)) for value in known.values()):
        kinds = " or ".join(type(value).__name__ for value in known.values())
        names = ", ".join([*known, *more])
        raise UserError(f"objective is {objective!r}: use one of {names}, or a value of {kinds}")
    if not isinstance(compute, Compute):
        raise UserError(f"compute is {compute!r}: give a Compute(...)")
    fields = [_fields(one) for one in (record, Settings, compute)]
    for name in options:
        others = [other for other, value in known.items() if name in _fields(value)]
        if others and not any(name in names for names in fields):
            raise UserError(f"option is {name!r}: it is for objective={others[0]!r}; add that")
        check_known("option", name, itertools.chain(*fields))
    own, outer, device = ({k: options[k] for k in names if k in options} for names in fields)
    record = dataclasses.replace(record, **own)
    return _Asked(record, outer, dataclasses.replace(compute, **device))


def _fields(record: Any) -> list[str]:
    return [field.name for field in dataclasses.fields(record)]


def _select(
    key: jax.Array,
    call: _Call,
    asked: _Asked,
    choose: Callable[[Data, int, _Asked], _Chosen],
) -> Result:
    """The border, the outer loop, and the choice that it ends in."""
    with _watched(call), blas.one_thread():
        objective, compute = asked.objective, asked.compute
        if isinstance(objective, Network):
            _check_model(call.model)
        by_rows = isinstance(call.x, Rows)
        data = (check_rows if by_rows else check_data)(
            call.x, call.y, call.validation, _kind(objective.loss_fn), objective.scale
        )
        _agree(key, call, asked, data)
        n, size, choice, settings, names = choose(data, call.size, asked)
        run_key, draw_key, build_key = jax.random.split(key, 3)
        x, y, validation = data.x, data.y, data.validation
        progress_lib.stage("Building the objective")
        build = partial(_build_by_rows, objective) if by_rows else objective.build
        evaluate, improve, predict = build(
            build_key, x, y, call.model, size, validation, choice, settings, compute
        )
        state = _start(run_key, n, size, settings, call.start)
        try:
            state, history = loop.run(
                state, evaluate, settings, compute.callback, compute.callback_every
            )
        finally:
            loop.forget()
        s = state.probabilities
        classes = (y, settings.max_ratio)
        indices = draw.draw_coreset(draw_key, s, size, settings.final, *classes)
        if improve is not None:
            progress_lib.stage("Exchanging")
            indices = improve(jax.random.fold_in(draw_key, 1), indices)
    result = Result(indices, np.asarray(s), history, names=names)
    if isinstance(choice, Inputs):
        return dataclasses.replace(result, unit="inputs")
    find = None
    if predict is not None:
        find = lambda: _suspects(predict(jax.random.fold_in(draw_key, 2), indices), data)  # noqa: E731
    return dataclasses.replace(
        result, labels=data.encoding.decode(y), pictures=_pictures(data.given), find_suspects=find
    )


def _choose(key: jax.Array, call: _Call, asked: _Asked) -> Result:
    """The border, and the portfolio."""
    for name in asked.loop:
        raise UserError(
            f"option is {name!r}, which objective='auto' chooses by itself: leave it out, or add "
            "objective='network' or 'kernel'"
        )
    if isinstance(call.x, Rows):
        raise UserError(
            "objective is 'auto', and x gives rows by index: use objective='network', or give all "
            "candidates as an array"
        )
    if call.start is not None or asked.compute != Compute():
        what = "compute" if call.start is None else "start"
        raise UserError(
            f"{what} is given, which is for objective='network' or 'kernel': leave it out, or add "
            "one of these"
        )
    with _watched(call), blas.one_thread():
        options = asked.objective
        data = check_data(call.x, call.y, call.validation, _kind(options.loss_fn), options.scale)
        size = None if call.size == "auto" else call.size
        if size is not None:
            loop.check_size(len(data.y), size)
            size = int(size)
        _agree(key, call, asked, data)
        try:
            found = portfolio.search(key, data, call.model, size, options)
        finally:
            loop.forget()
    return Result(
        found.indices,
        found.probabilities,
        {},
        labels=data.encoding.decode(data.y),
        pictures=_pictures(data.given),
        choice=found.choice,
        find_suspects=lambda: _suspects(found.outputs(), data),
    )


def _watched(call: _Call) -> contextlib.AbstractContextManager[None]:
    """With a bar, if it is wanted."""
    if not isinstance(call.progress, bool):
        raise UserError(f"progress is {call.progress!r}: use True or False")
    return progress_lib.shown(call.progress)


def _agree(key: jax.Array, call: _Call, asked: _Asked, data: Data) -> None:
    """Raises unless all processes that select together were called with the same."""
    mesh = asked.compute.mesh
    if mesh is not None and not processes.span(mesh):
        return
    held_out = data.validation or (np.zeros(0), np.zeros(0))
    start = call.start.probabilities if isinstance(call.start, loop.State) else call.start
    records = [asked.loop, vars(asked.objective), call.size]
    processes.agree(
        {
            "key": np.asarray(jax.random.key_data(key)),
            "x": call.x.some() if isinstance(call.x, Rows) else data.x,
            "y": data.y,
            "validation x": held_out[0],
            "validation y": held_out[1],
            "start": np.zeros(0) if start is None else np.asarray(start),
            "the set of options": processes.plain(records),
        }
    )


def _build_by_rows(
    objective: Any, key, x, y, model, size, validation, choice, settings: Settings, compute
) -> Built:
    """The objective where candidates are `Rows`; raises for what needs all of them at once."""
    what = (
        f"objective is {type(objective).__name__}" * (not isinstance(objective, Network))
        or "what is chosen is inputs" * isinstance(choice, Inputs)
        or f"estimator is {settings.estimator!r}" * (settings.estimator != "pge")
    )
    if what:
        raise UserError(
            f"{what}, and x gives rows by index: select samples by the objective 'network' and the "
            "estimator 'pge', or give all candidates as an array"
        )
    options = {"num_masks": settings.num_masks, "compute": compute}
    return Built(
        rows_objective(as_model(model), x, y, choice, objective, validation=validation, **options)
    )


def _samples(data: Data, size: int, asked: _Asked) -> _Chosen:
    """A mask over samples."""
    n = len(data.x)
    loop.check_size(n, size)
    best = ""
    if isinstance(asked.objective, Network):
        best = (
            "pge" if isinstance(data.x, Rows) else asked.objective.best_estimator(of_inputs=False)
        )
    settings = _settings(asked, n, size, best)
    if settings.smooth:
        raise UserError(f"smooth is {settings.smooth}: it is for inputs; use 0")
    if getattr(asked.objective, "outer_on", "all") != "all":
        raise UserError(f"outer_on is {asked.objective.outer_on!r}: it is for inputs; use 'all'")
    ratio = settings.max_ratio
    if ratio and data.encoding.classes is None:
        raise UserError(f"max_ratio is {ratio}: it is for classes; use 0 for a regression")
    if ratio and getattr(asked.objective, "exchanges", 0):
        raise UserError(
            f"kernel.exchanges is {asked.objective.exchanges} and max_ratio {ratio}: exchanges "
            "keep no bound on classes; set one of them to 0"
        )
    if ratio and (most := draw.balanced_size(data.y, ratio)) < size:
        _LOG.info(
            "max_ratio is %g: %d samples are chosen in place of %d, because the smallest class has "
            "too few candidates",
            *(ratio, most, size),
        )
        size = most
    choice = Samples(masks.capacities(n, settings.largest_size(n, size)))
    return _Chosen(n, int(size), choice, settings, None)


def _inputs(groups: Any, data: Data, size: int, asked: _Asked) -> _Chosen:
    """A mask over inputs."""
    numbers = inputs_lib.numbers(groups, data.x.shape[1:])
    n = int(numbers.max()) + 1
    loop.check_size(n, size)
    is_network = isinstance(asked.objective, Network)
    best = asked.objective.best_estimator(of_inputs=True) if is_network else ""
    settings = _settings(asked, n, size, best)
    if settings.max_ratio:
        raise UserError(f"max_ratio is {settings.max_ratio}: it is for samples; use 0")
    if settings.smooth:
        near = inputs_lib.neighbourhood(numbers, settings.smooth)
        estimator = smoothed(settings.gradient_estimator(), near)
        settings = dataclasses.replace(settings, estimator=estimator)
    return _Chosen(n, int(size), Inputs(numbers), settings, data.names if groups is None else None)


def _settings(asked: _Asked, n: int, size: int, best: str = "") -> Settings:
    """The objective's own settings of the outer loop with the user's in their place.

    Args:
      asked: what the user gave.
      n: how many there are to choose from.
      size: K.
      best: what estimator 'auto' stands for; empty for the objective's own.
    """
    given = dict(asked.loop)
    if given.get("estimator") == "auto":
        del given["estimator"]
        given |= {"estimator": best} if best else {}
    own = asked.objective.loop_settings(n, size, given.get("estimator"))
    settings = dataclasses.replace(own, **given)
    if (needed := 4 * n * settings.num_masks) > memory.total() // 4:
        raise UserError(
            f"num_masks is {settings.num_masks}: so many masks of {n} take {needed / 2**30:.1f} GB "
            "several times over; use fewer"
        )
    return settings


def _kind(loss_fn: Any) -> str:
    """What a training loss makes of the targets, see `border.Encoding`."""
    if callable(loss_fn):
        return "as_given"
    return {"auto": "auto", "squared_error": "numbers"}.get(loss_fn, "classes")


def _start(key: jax.Array, n: int, size: int, settings: Settings, given: Start) -> loop.State:
    """The state to start from."""
    if not isinstance(given, loop.State):
        return loop.init(key, n, size, settings, given)
    fresh = loop.init(key, n, size, settings)
    shape, given_size = np.shape(given.probabilities), float(given.size)
    if shape != (n,) or given_size != size:
        raise UserError(
            f"start is a state of {given_size:g} of {shape[0] if shape else 0}: give one of {size} "
            f"of {n}, or None"
        )
    if jax.tree.structure(fresh) != jax.tree.structure(given):
        raise UserError(
            "start is a state of another optimizer or estimator: give the settings of its own run"
        )
    return given


def _suspects(outputs: np.ndarray, data: Data) -> Suspects:
    """Where the outputs contradict the targets, most of all first."""
    rows = np.arange(len(data.y))
    if data.encoding.classes is not None:
        outputs = outputs[:, : len(data.encoding.classes)]
        found = outputs.argmax(1)
        scores = outputs[rows, found] - outputs[rows, data.y]
        wrong = found != data.y
    else:
        found = outputs.reshape(data.y.shape)
        scores = np.abs(found - data.y).reshape(len(rows), -1).mean(1)
        wrong = scores > 3 * 1.4826 * np.median(scores)  # beyond three standard deviations
    order = np.argsort(-scores, kind="stable")
    order = order[wrong[order]]
    return Suspects(order, scores[order], data.encoding.decode(found[order]))


def _pictures(x: np.ndarray) -> np.ndarray | None:
    """`[n, height, width, channels]` if these are pictures."""
    x = x[..., None] if x.ndim == 3 else x
    return x if x.ndim == 4 and x.shape[-1] in (1, 3) else None


def _check_model(model: Any) -> None:
    if model is None:
        raise UserError("model is None: this objective trains one; give a model, or use 'kernel'")
