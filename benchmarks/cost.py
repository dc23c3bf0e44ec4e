"""What a traced program costs: counted from its jaxpr, loops times their length.

XLA's own analysis counts the body of a loop once, and knows no custom calls; here nearly all work
is in loops.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

UNKNOWN_TRIPS = 10
"""Of a loop that ends on a condition, such as Newton's in the projection."""
FUSED = 4
"""Elementwise operations that become one, which reads and writes once."""
SLOW = {"exp", "log", "log1p", "expm1", "tanh", "logistic", "erf", "erf_inv", "pow", "sin", "cos"}
MEDIUM = {"div", "sqrt", "rsqrt", "integer_pow", "rem"}
COPIES = {"gather", "dynamic_slice", "slice", "concatenate", "pad", "transpose", "rev"}
FREE = {"broadcast_in_dim", "reshape", "squeeze", "convert_element_type", "iota", "stop_gradient"}
FREE |= {"copy", "sharding_constraint", "random_wrap", "random_unwrap", "expand_dims"}


class Cost(NamedTuple):
    """Of a program on one device.

    Attributes:
      matmul: floating-point operations of products and convolutions.
      thin: the same, of those with a side below 16, which fill no vector unit.
      vector: elementwise operations, each as often as there are elements.
      memory: bytes read and written by what is not fused.
      ops: operations one after another.
    """

    matmul: float = 0.0
    thin: float = 0.0
    vector: float = 0.0
    memory: float = 0.0
    ops: float = 0.0

    def __add__(self, other: Any) -> "Cost":
        return Cost(*(a + b for a, b in zip(self, other, strict=True)))

    def times(self, factor: float) -> "Cost":
        """So many of it."""
        return Cost(*(factor * value for value in self))


def of(function: Callable, *arguments: Any) -> Cost:
    """Of a function of arrays, or of their shapes.

    >>> of(lambda a, b: a @ b, jnp.ones((64, 32)), jnp.ones((32, 16))).matmul
    65536.0
    >>> fifth = lambda a: jax.lax.scan(lambda c, _: (c @ c, None), a, None, 5)[0]
    >>> of(fifth, jnp.ones((32, 32))).matmul == 5 * 2 * 32**3
    True
    """
    return _sum(jax.make_jaxpr(function)(*arguments).jaxpr)


def _sum(jaxpr: Any) -> Cost:
    total = Cost()
    for equation in jaxpr.eqns:
        total += _one(equation)
    return total


def _one(equation: Any) -> Cost:
    name, params = equation.primitive.name, equation.params
    if name == "scan":
        return _sum(params["jaxpr"].jaxpr).times(params["length"])
    if name == "while":
        both = _sum(params["body_jaxpr"].jaxpr) + _sum(params["cond_jaxpr"].jaxpr)
        return both.times(UNKNOWN_TRIPS)
    if name == "cond":
        branches = [_sum(branch.jaxpr) for branch in params["branches"]]
        return max(branches, key=lambda cost: cost.matmul + cost.thin + cost.vector)
    inner = [p for p in jax.tree.leaves(list(params.values()), is_leaf=_is_jaxpr) if _is_jaxpr(p)]
    if name.startswith("custom_") or name in ("pjit", "jit", "remat2", "checkpoint", "shard_map"):
        return _sum(getattr(inner[0], "jaxpr", inner[0])) if inner else Cost()
    return _leaf(name, equation)


def _is_jaxpr(value: Any) -> bool:
    return hasattr(value, "eqns") or hasattr(value, "jaxpr")


def _leaf(name: str, equation: Any) -> Cost:
    ins = [v.aval for v in equation.invars if hasattr(v.aval, "shape")]
    outs = [v.aval for v in equation.outvars]
    size = float(sum(math.prod(a.shape) for a in outs))
    written, read = _bytes(outs), _bytes(ins)
    if name == "dot_general":
        (contracted, _), (batch, _) = equation.params["dimension_numbers"]
        k = math.prod(ins[0].shape[i] for i in contracted)
        rows = math.prod(ins[0].shape) // k // math.prod(ins[0].shape[i] for i in batch)
        columns = size / max(rows, 1) / math.prod(ins[0].shape[i] for i in batch)
        return _product(2 * size * k, min(k, rows, columns), read + written)
    if name == "conv_general_dilated":
        layout = equation.params["dimension_numbers"].rhs_spec
        kernel = ins[1].shape
        taps = math.prod(kernel) / kernel[layout[0]]
        return _product(2 * size * taps, kernel[layout[0]], read + written)
    if name == "cholesky":
        return _product(size * outs[0].shape[-1] / 3, outs[0].shape[-1], read + written)
    if name == "triangular_solve":
        return _product(size * ins[0].shape[-1], outs[0].shape[-1], read + written)
    if name in FREE:
        return Cost()
    if name in COPIES:
        return Cost(memory=2 * written, ops=1)
    if name.startswith(("scatter", "dynamic_update")):
        return Cost(memory=3 * _bytes(ins[1:]), ops=1)
    if name in ("sort", "top_k", "approx_top_k"):
        numbers = float(math.prod(ins[0].shape))
        return Cost(vector=numbers * math.log2(max(ins[0].shape[-1], 2)), memory=2 * read, ops=1)
    if name.startswith(("reduce", "arg", "cum", "select_and")):
        return Cost(vector=float(math.prod(ins[0].shape)), memory=read + written, ops=1)
    if name.startswith(("random_", "threefry")):
        return Cost(vector=40 * size, memory=written, ops=1)
    weight = 10 if name in SLOW else 4 if name in MEDIUM else 1
    return Cost(vector=weight * size, memory=2 * written / FUSED, ops=1 / FUSED)


def _product(flops: float, least: float, memory: float) -> Cost:
    thin = least < 16
    return Cost(flops * (not thin), flops * thin, 0.0, memory, 1.0)


def _bytes(arrays: Any) -> float:
    return float(sum(math.prod(a.shape) * _itemsize(a) for a in arrays))


def _itemsize(aval: Any) -> int:
    return getattr(jnp.dtype(aval.dtype), "itemsize", 8) if _is_plain(aval) else 8


def _is_plain(aval: Any) -> bool:
    return not jax.dtypes.issubdtype(aval.dtype, jax.dtypes.extended)
