"""How the rest of the library sees a model: three pure functions, whoever wrote it."""

import inspect
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import flax.linen as nn

from pbcs_jax.errors import UserError

Variables = dict[str, Any]


class Model(NamedTuple):
    """A model as pure functions. Hashable: it may be a static argument of `jax.jit`.

    `variables` is a dict of `params`, the pytree that is trained, and `state`, a dict of what is
    carried along without being trained (`batch_stats`), empty for most models.

    Attributes:
      init: `init(key, x) -> variables`; consumes `key`, `x` `[B, ...]` gives the shape.
      apply: `apply(variables, x, *, key=None, train=False, mask=None) -> (outputs, variables)`.
        `outputs` `[B, ...]`; `variables` with `state` brought up to date when training; `key` is
        consumed by dropout when training; `mask` `[B]` is 1 for rows that count and 0 for padding.
      embed: `embed(variables, x) -> [B, d]`, the penultimate activations, or None.
      input_kernel: where in `params` the kernel `[d, h]` is that the flattened input is multiplied
        with, and is used for nothing else, or None: see `span.py`.
    """

    init: Callable[..., Variables]
    apply: Callable[..., tuple[Any, Variables]]
    embed: Callable[..., Any] | None = None
    input_kernel: tuple[str, ...] | None = None


def as_model(model: Any) -> Model:
    """What a user may give as a model, as a `Model`; equal modules give the same object.

    Args:
      model: a `Model`; or a flax.linen module whose `__call__` takes `x` and, if it wants them,
        `train`, `mask` and `embed`; or a pair of pure functions `(init(key, x) -> params,
        apply(params, x) -> outputs)`, which is how NNX, Haiku and Equinox models fit in.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> model = as_model((lambda key, x: jnp.zeros(x.shape[1]), lambda params, x: x @ params))
      >>> variables = model.init(jax.random.key(0), jnp.ones((3, 2)))
      >>> outputs, variables = model.apply(variables, jnp.ones((3, 2)), train=True)
      >>> outputs.shape
      (3,)
    """
    if isinstance(model, Model):
        return model
    if isinstance(model, list):
        model = tuple(model)
    is_pair = isinstance(model, tuple) and len(model) == 2 and all(map(callable, model))
    if not (is_pair or isinstance(model, nn.Module)):
        raise UserError(
            f"model is {model!r}: give an instance of a flax.linen module, or a pair of functions "
            "(init(key, x), apply(params, x))"
        )
    try:
        hash(model)
    except TypeError:  # a list among a module's attributes, say
        return _build(model)
    return _build_once(model)


def _build(model: Any) -> Model:
    return _from_pair(*model) if isinstance(model, tuple) else _from_linen(model)


# What `jit` compiled for a model is found again only if an equal model gives the same functions.
_build_once = lru_cache(maxsize=128)(_build)


def _from_pair(init_fn: Callable[..., Any], apply_fn: Callable[..., Any]) -> Model:
    def init(key, x):
        return {"params": init_fn(key, x), "state": {}}

    def apply(variables, x, *, key=None, train=False, mask=None):
        del key, train, mask
        return apply_fn(variables["params"], x), variables

    return Model(init, apply)


def _from_linen(module: Any) -> Model:
    accepted = _keywords(module)

    def init(key, x):
        params, state = _split(module.init(key, x, **_keep(accepted, train=False)))
        return {"params": params, "state": state}

    def apply(variables, x, *, key=None, train=False, mask=None):
        collections = {"params": variables["params"], **variables["state"]}
        outputs, state = module.apply(
            collections,
            x,
            rngs={"dropout": key} if train and key is not None else None,
            mutable=list(variables["state"]) if train else [],
            **_keep(accepted, train=train, mask=mask),
        )
        state = state if train else variables["state"]
        return outputs, {"params": variables["params"], "state": state}

    def embed(variables, x):
        collections = {"params": variables["params"], **variables["state"]}
        return module.apply(collections, x, embed=True)

    embed_or_none = embed if "embed" in accepted else None
    return Model(init, apply, embed_or_none, getattr(module, "input_kernel", None))


def _split(collections: Variables) -> tuple[Any, Variables]:
    """The trained parameters (a module may have none), and the other collections."""
    return collections.get("params", {}), {k: v for k, v in collections.items() if k != "params"}


def _keep(accepted: frozenset[str], **keywords: Any) -> dict[str, Any]:
    return {name: value for name, value in keywords.items() if name in accepted}


def _keywords(module: nn.Module) -> frozenset[str]:
    """Which of `train`, `mask` and `embed` the module's `__call__` takes, if it fits at all."""
    known = {"train", "mask", "embed"}
    _, *parameters = inspect.signature(module.__call__).parameters.values()
    accepted = {p.name for p in parameters if p.name in known}
    if any(p.kind is p.VAR_KEYWORD for p in parameters):
        accepted |= {"train", "mask"}
    unknown = [
        p.name
        for p in parameters
        if p.name not in known
        and p.default is p.empty
        and p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)
    ]
    if unknown:
        raise UserError(
            f"{type(module).__name__}.__call__ needs {', '.join(unknown)}: it may take x, train "
            "and mask; give the others a default, or wrap it as (init(key, x), apply(params, x))"
        )
    return frozenset(accepted)
