"""An NNX module as a `Model`: what it trains, what it carries along, and where its keys come from.

An NNX module holds its parameters, its batch statistics and its random streams, and changes them
when it is called. Here it is taken apart once for each initialisation, and put together anew for
each call. Random streams are never kept: each call gets them from the key that it is given.
"""

import functools
import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from pbcs_jax.errors import UserError
from pbcs_jax.nets.model import Model, Variables, accepted_keywords, keep


def from_nnx(make: Callable[..., Any]) -> Model:
    """An NNX model, BatchNorm and Dropout included, as a `Model`; the same `make` gives the same.

    Args:
      make: called with an `nnx.Rngs`, returns an `nnx.Module`: a class whose only argument is
        `rngs`, `functools.partial(Net, 32)`, or a function. The module's `__call__` takes `x`
        and, if it wants them, `train`, `mask`, `embed` and `rngs`. Its `nnx.Param` are trained.
        Dropout and BatchNorm are set to training or evaluation, as `module.train()` does. A
        BatchNorm that is not given `mask` `[B]`, true for rows that count, counts padding too.

    Example:
      >>> from flax import nnx
      >>> model = from_nnx(functools.partial(nnx.BatchNorm, 2))
      >>> variables = model.init(jax.random.key(0), jnp.ones((3, 2)))
      >>> sorted(variables["params"]), sorted(variables["state"])
      (['bias', 'scale'], ['mean', 'var'])
      >>> _, after = model.apply(variables, jnp.ones((3, 2)), train=True)
      >>> bool(jnp.all(after["state"]["mean"] > 0))
      True
    """
    # Taken apart, because two equal partials are not equal to Python.
    parts = make if isinstance(make, functools.partial) else functools.partial(_called(make))
    try:
        hash((parts.func, parts.args, *parts.keywords.values()))
    except TypeError:  # a list among the arguments, say
        return _build(parts.func, *parts.args, **parts.keywords)
    return _build_once(parts.func, *parts.args, **parts.keywords)


class _Parts(NamedTuple):
    graph: Any  # the module without its arrays
    params: Variables
    streams: Variables  # keys and counts
    state: Variables


def _build(function: Callable[..., Any], /, *arguments: Any, **keywords: Any) -> Model:
    from flax import nnx  # late: `import pbcs_jax` does without

    name = getattr(function, "__name__", type(function).__name__)
    make = _maker(name, function, arguments, keywords)

    def take_apart(module: Any) -> _Parts:
        graph, *parts = nnx.split(module, nnx.Param, nnx.RngState, ...)
        return _Parts(graph, *map(nnx.to_pure_dict, parts))

    def inspect_once(key):
        module = make(nnx.Rngs(key))
        if not isinstance(module, nnx.Module):
            raise UserError(
                f"{name}(rngs) is of type {type(module).__name__}: from_nnx needs an nnx.Module"
            )
        parts = take_apart(module)
        _check_leaves(type(module).__name__, parts)
        accepted = accepted_keywords(module, ("train", "mask", "embed", "rngs"), variadic=())
        seen.append((parts.graph, accepted))
        return parts.streams

    seen: list[tuple[Any, frozenset[str]]] = []
    streams = jax.eval_shape(inspect_once, jax.random.key(0))
    ((graph, accepted),) = seen
    num_streams = len(jax.tree.leaves(streams))

    def init(key, x):
        del x  # an NNX module knows its shapes
        parts = take_apart(make(nnx.Rngs(key)))
        return jax.tree.map(jnp.asarray, {"params": parts.params, "state": parts.state})

    def call(variables, x, key=None, train=False, **given):
        state = variables["state"]
        filled = _fill(streams, jax.random.key(0) if key is None else key)
        module = nnx.merge(graph, variables["params"], filled, state)
        module.set_attributes(
            deterministic=not train, use_running_average=not train, raise_if_not_found=False
        )
        rngs = None if key is None else nnx.Rngs(jax.random.fold_in(key, num_streams))
        outputs = module(x, **keep(accepted, train=train, rngs=rngs, **given))
        return outputs, _like(state, take_apart(module).state) if train else state

    def apply(variables, x, *, key=None, train=False, mask=None):
        if train and num_streams and key is None:
            raise UserError(f"key is None: {name} has random streams; give apply a key to train")
        mask = None if mask is None else jnp.asarray(mask, bool)  # as nnx.BatchNorm wants it
        outputs, state = call(variables, x, key if train else None, train, mask=mask)
        return outputs, {"params": variables["params"], "state": state}

    def embed(variables, x):
        return call(variables, x, embed=True)[0]

    return Model(init, apply, embed if "embed" in accepted else None)


# Typed: the numbers 1, 1.0 and True make different nets.
_build_once = functools.lru_cache(maxsize=128, typed=True)(_build)


def _called(make: Any) -> Callable[..., Any]:
    """`make`, if it can be called and is not yet what it should make."""
    from flax import nnx

    if isinstance(make, nnx.Module):
        name = type(make).__name__
        raise UserError(f"make is an instance of {name}: give what makes it, from_nnx({name})")
    if not callable(make):
        raise UserError(f"make is {make!r}: give a function of an nnx.Rngs, make(rngs)")
    return make


def _maker(
    name: str, function: Callable[..., Any], arguments: tuple[Any, ...], keywords: dict[str, Any]
) -> Callable[[Any], Any]:
    """`function` as a function of `rngs` alone, or an error if it needs anything else."""
    # The metaclass of NNX hides the arguments of a class.
    whole: Any = function
    constructor = whole.__init__ if isinstance(function, type) else None
    signature = inspect.signature(constructor or function)
    given = (None, *arguments) if constructor else arguments
    by_name = "rngs" in signature.parameters
    try:
        if by_name:
            signature.bind(*given, **keywords, rngs=None)
        else:
            signature.bind(*given, None, **keywords)
    except TypeError as error:
        names = ", ".join(list(signature.parameters)[1 if constructor else 0 :])
        raise UserError(
            f"make is {name}({names}): it is called with rngs and nothing else; give it the rest "
            f"by functools.partial({name}, ...)"
        ) from error
    if by_name:
        return lambda rngs: function(*arguments, **keywords, rngs=rngs)
    return lambda rngs: function(*arguments, rngs, **keywords)


def _check_leaves(name: str, parts: _Parts) -> None:
    """Raises on arrays that would be lost, and on keys that would be trained or carried along."""
    for attribute, kept in parts.graph.attributes:
        value = getattr(kept, "value", None)
        held = value if isinstance(value, tuple | list) else (value,)
        if any(isinstance(item, jax.core.Tracer) for item in held):
            raise UserError(
                f"{name}.{attribute} is a bare array: keep it as nnx.Variable(array), or as "
                "nnx.Param(array) to train it"
            )
    for path, leaf in jax.tree_util.tree_leaves_with_path((parts.params, parts.state)):
        if _is_key(leaf):
            place = ".".join(str(step.key) for step in path[1:])
            raise UserError(f"{name}.{place} is a random key: keep `rngs` itself, not a key")


def _fill(streams: Variables, key: jax.Array) -> Variables:
    """Every stream with a key of its own, made of `key`, from which nothing was drawn yet."""
    leaves, structure = jax.tree.flatten(streams)
    filled = [
        _keys(jax.random.fold_in(key, i), leaf.shape)
        if _is_key(leaf)
        else jnp.zeros(leaf.shape, leaf.dtype)
        for i, leaf in enumerate(leaves)
    ]
    return jax.tree.unflatten(structure, filled)


def _keys(key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    return jax.random.split(key, shape) if shape else key


def _is_key(leaf: Any) -> bool:
    return jnp.issubdtype(jnp.result_type(leaf), jax.dtypes.prng_key)


def _like(before: Any, after: Any) -> Any:
    """`after` without what was not there `before`, such as intermediates that a call sowed."""
    if not isinstance(before, dict):
        return after
    return {name: _like(value, after[name]) for name, value in before.items()}
