"""How the rest of the library sees a model: three pure functions, whoever wrote it."""

import inspect
import reprlib
import sys
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any, NamedTuple

import flax.linen as nn

from pbcs_jax.errors import UserError

Variables = dict[str, Any]

_PAIR = "a pair of functions (init(key, x), apply(params, x))"


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
        apply(params, x) -> outputs)`, which is how Haiku and Equinox models fit in. For a model
        in NNX there is `from_nnx`.

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
        raise UserError(f"model is {_describe(model)}")
    if is_pair:
        _check_pair(*model)
    try:
        hash(model)
    except TypeError:  # a list among a module's attributes, say
        return _build(model)
    return _build_once(model)


def _describe(model: Any) -> str:
    """What was given in place of a model, and what to give instead."""
    made = model.func if isinstance(model, partial) else model
    kind = made if isinstance(made, type) else type(made)
    if _is_module("flax.nnx", kind):
        what = "the NNX class" if isinstance(made, type) else "an instance of the NNX class"
        return f"{what} {kind.__name__}: wrap what makes it, nets.from_nnx({kind.__name__})"
    if _is_module("torch.nn", kind):
        return f"the torch module {kind.__name__}: write it in JAX, as a flax module or {_PAIR}"
    if issubclass(kind, nn.Module):
        return f"the class {kind.__name__}: give an instance, {kind.__name__}(...)"
    if isinstance(model, tuple):
        inside = ", ".join(getattr(part, "__name__", type(part).__name__) for part in model)
        return f"a tuple of {len(model)}, ({inside}): give {_PAIR}"
    if callable(model):
        name = getattr(made, "__name__", type(made).__name__)
        return f"the one function {name}: give {_PAIR}, or a flax module"
    return f"{' '.join(reprlib.repr(model).split())}: give a flax.linen module, or {_PAIR}"


def _is_module(library: str, kind: type) -> bool:
    """Whether `kind` is a Module of `library`; nobody has one before the library is imported."""
    base = getattr(sys.modules.get(library), "Module", None)
    return base is not None and issubclass(kind, base)


def _check_pair(init_fn: Callable[..., Any], apply_fn: Callable[..., Any]) -> None:
    for what, function, first in (("init", init_fn, "key"), ("apply", apply_fn, "params")):
        try:
            signature = inspect.signature(function)
        except (TypeError, ValueError):  # some builtins have none
            continue
        try:
            signature.bind(None, None)
        except TypeError as error:
            name = getattr(function, "__name__", type(function).__name__)
            raise UserError(
                f"{what} of the model is {name}({', '.join(signature.parameters)}): it is called "
                f"with ({first}, x)"
            ) from error


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
    accepted = accepted_keywords(module, ("train", "mask", "embed"), variadic=("train", "mask"))

    def init(key, x):
        params, state = _split(module.init(key, x, **keep(accepted, train=False)))
        return {"params": params, "state": state}

    def apply(variables, x, *, key=None, train=False, mask=None):
        collections = {"params": variables["params"], **variables["state"]}
        outputs, state = module.apply(
            collections,
            x,
            rngs={"dropout": key} if train and key is not None else None,
            mutable=list(variables["state"]) if train else [],
            **keep(accepted, train=train, mask=mask),
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


def keep(accepted: frozenset[str], **keywords: Any) -> dict[str, Any]:
    """Those of `keywords` that are `accepted`."""
    return {name: value for name, value in keywords.items() if name in accepted}


def accepted_keywords(
    module: Any, known: tuple[str, ...], variadic: tuple[str, ...]
) -> frozenset[str]:
    """Which of the `known` arguments the module's `__call__` takes, if it fits at all.

    Args:
      module: its `__call__` takes x first.
      known: what may be given to it besides x.
      variadic: those of `known` that a `**kwargs` is taken to want.
    """
    name = type(module).__name__
    if not callable(module):
        raise UserError(f"{name}.__call__ is missing: give the module one that takes x")
    parameters = list(inspect.signature(module.__call__).parameters.values())
    if not parameters:
        raise UserError(f"{name}.__call__ is without arguments: it must take x")
    rest = parameters[1:]
    accepted = {p.name for p in rest if p.name in known}
    if any(p.kind is p.VAR_KEYWORD for p in rest):
        accepted |= set(variadic)
    unknown = [
        p.name
        for p in rest
        if p.name not in known
        and p.default is p.empty
        and p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)
    ]
    if unknown:
        raise UserError(
            f"{name}.__call__ needs {', '.join(unknown)}: it may take x, train and mask; give the "
            "others a default, or wrap it as (init(key, x), apply(params, x))"
        )
    return frozenset(accepted)
