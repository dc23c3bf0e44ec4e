"""Embeddings for the kernel objective: from samples to rows of numbers, `[n, ...] -> [n, d]`.

raw          the inputs themselves, flattened: embeddings, tables, pixels
patches      pictures: random whitened 5x5 patches of the data as filters, rectified, pooled
ntk          the neural tangent kernel of networks at their initialisation, sketched
trained_ntk  the same of networks each trained on K random candidates: what is learned from so few;
             with validation data they are drawn with its classes' shares
relu_ntk     that of wide networks with two dense hidden layers, in closed form; for a few thousand
network      the penultimate layer of a network trained on whatever labels there are

Several can be put together, as `patches+ntk`: the kernel is then the mean of theirs.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from pbcs_jax.compute.chunks import in_chunks
from pbcs_jax.errors import UserError, check_known
from pbcs_jax.inner.pretrain import FEWEST_STEPS, pretrain
from pbcs_jax.nets.conv import Conv
from pbcs_jax.nets.model import Model, Variables, as_model
from pbcs_jax.objectives.relu_kernel import relu_tangents
from pbcs_jax.objectives.ridge import like_validation

NAMES = ("auto", "raw", "patches", "ntk", "trained_ntk", "relu_ntk", "network")
CHUNK = 256
# Tables of more numbers than this are normalised where they are.
LARGE_TABLE = 1 << 27
# Inputs whose gradients with respect to all weights are in memory together.
GRADIENTS_AT_ONCE = 64
# The tangent kernel of one finite network is noisy: the mean over several is taken. Trained on few
# samples, they differ more.
NETWORKS = {"ntk": 3, "trained_ntk": 8}
_PATCH, _POOLED = 5, 4
_ROWS = 1 << 14


def embed(
    given: Any,
    key: jax.Array,
    x: jax.Array,
    y: jax.Array,
    model: Any,
    size: int,
    validation: tuple[jax.Array, jax.Array] | None,
) -> list[jax.Array]:
    """Normalised embeddings of the candidates, and of the validation data if there are any.

    Args:
      given: a name, see `make`; or `[n, d]` numbers; or, with validation data, a pair of such
        arrays.
      key: PRNG key, consumed.
      x: `[n, ...]` candidates. A table of more than `LARGE_TABLE` numbers that is a NumPy array is
        overwritten, if it is its own embedding: it has no room beside a copy.
      y: `[n]` their targets.
      model: for embeddings by networks.
      size: K.
      validation: `(x, y)`, or None.
    """
    is_large = isinstance(x, np.ndarray) and x.ndim == 2 and x.size > LARGE_TABLE
    if is_large and isinstance(given, str) and given in ("auto", "raw"):
        more = [] if validation is None else [np.array(validation[0], np.float32)]
        # `jnp.asarray` would copy them.
        return [jax.device_put(rows) for rows in normalise_in_place(x, *more)]
    if isinstance(given, str):
        others, weights = [], None
        if validation is not None:
            others = [validation[0]]
            weights = like_validation(jnp.asarray(y), jnp.asarray(validation[1]))
        rows = make(given, key, jnp.asarray(x), y, model, others, size, weights)
    elif validation is None:
        rows = [check(given, len(x))]
    elif isinstance(given, tuple) and len(given) == 2:
        counts = (len(x), len(validation[0]))
        rows = [check(a, n) for a, n in zip(given, counts, strict=True)]
    else:
        raise UserError(
            "embeddings are one array beside validation data: give a pair, (candidates', "
            "validation's)"
        )
    return normalise(*rows)


def make(
    name: str,
    key: jax.Array,
    x: jax.Array,
    y: jax.Array,
    model: Any,
    others: Sequence[jax.Array],
    size: int,
    weights: jax.Array | None = None,
) -> list[jax.Array]:
    """Embeddings of the candidates, and of other samples by the same function.

    Args:
      name: one of `NAMES`, or several with '+' between; 'auto' is 'patches' for pictures and 'raw'
        for everything else.
      key: PRNG key, consumed.
      x: `[n, ...]` candidates.
      y: `[n]` their targets, for 'network' and 'trained_ntk'.
      model: for these and 'ntk'.
      others: further inputs `[m, ...]`.
      size: K, for 'trained_ntk'.
      weights: `[n]`, how likely 'trained_ntk' is to draw each candidate; None draws evenly.

    Returns:
      `[n, d]`, and `[m, d]` of each of the others.
    """
    names = name.split("+")
    for one in names:
        check_known("embeddings", one, NAMES, ", or an array")
    if len(names) > 1:
        parts = [make(one, key, x, y, model, others, size, weights) for one in names]
        parts = [normalise(*rows) for rows in parts]
        return [jnp.concatenate(rows, axis=1) for rows in zip(*parts, strict=True)]
    if name == "auto":
        is_picture = x.ndim == 4 and min(x.shape[1:3]) >= _PATCH + _POOLED - 1
        name = "patches" if is_picture else "raw"
    if name in (*NETWORKS, "network") and model is None:
        raise UserError(f"model is None: embeddings {name!r} are those of a network; give a model")
    if name in NETWORKS:
        count = max(size, 1) if name == "trained_ntk" else 0
        function = network_tangents(key, x, y, model, count, weights, NETWORKS[name])
        return [function(jnp.asarray(rows)) for rows in (x, *others)]
    if name == "relu_ntk":
        together = relu_tangents(jnp.concatenate([x, *others]))
        return jnp.split(together, np.cumsum([len(x), *map(len, others)])[:-1])
    if name == "raw":
        function = lambda rows: rows.reshape(rows.shape[0], -1).astype(jnp.float32)  # noqa: E731
    elif name == "patches":
        function = random_patches(key, x)
    else:
        function = penultimate(key, x, y, model)
    compiled = jax.jit(lambda rows: in_chunks(function, rows, CHUNK))
    return [compiled(jnp.asarray(rows)) for rows in (x, *others)]


def normalise(embeddings: jax.Array, *others: jax.Array) -> list[jax.Array]:
    """All of them less the mean of the first, scaled so that its mean squared length is 1."""
    return _normalise(jnp.asarray(embeddings), *others)


@jax.jit  # in one go: embeddings of many candidates are gigabytes
def _normalise(embeddings, *others):
    mean = jnp.mean(embeddings, axis=0)
    scale = jnp.sqrt(jnp.mean(jnp.sum((embeddings - mean) ** 2, axis=1)))
    return [(rows - mean) / jnp.maximum(scale, 1e-12) for rows in (embeddings, *others)]


def normalise_in_place(embeddings: np.ndarray, *others: np.ndarray) -> list[np.ndarray]:
    """`normalise` of float32 arrays that are overwritten."""
    pieces = range(0, len(embeddings), _ROWS)
    total = sum(embeddings[i : i + _ROWS].sum(0, dtype=np.float64) for i in pieces)
    mean = (total / len(embeddings)).astype(np.float32)
    squares = 0.0
    for i in pieces:
        some = embeddings[i : i + _ROWS]
        some -= mean
        squares += float(np.vdot(some, some))
    scale = np.float32(max(np.sqrt(squares / len(embeddings)), 1e-12))
    for rows in others:
        rows -= mean
    for rows in (embeddings, *others):
        rows /= scale
    return [embeddings, *others]


def random_patches(key: jax.Array, x: jax.Array, filters: int = 128):
    """Filters drawn from the pictures themselves (Coates and Ng, 2012): a function of pictures.

    A filter is a random patch of the data, whitened. What it finds is rectified, positive and
    negative parts apart, and averaged over a 4 x 4 grid: 32 numbers per filter.

    Args:
      key: PRNG key, consumed.
      x: `[n, H, W, C]`, H and W at least 8.
      filters: how many.
    """
    n, height, width, channels = x.shape
    count = 20_000
    keys = jax.random.split(key, 4)
    picture = jax.random.randint(keys[0], (count,), 0, n)
    top = jax.random.randint(keys[1], (count,), 0, height - _PATCH + 1)
    left = jax.random.randint(keys[2], (count,), 0, width - _PATCH + 1)
    window = jnp.arange(_PATCH)
    x = jnp.asarray(x)
    patches = x[
        picture[:, None, None],
        (top[:, None] + window)[:, :, None],
        (left[:, None] + window)[:, None, :],
    ]
    patches = patches.reshape(count, -1).astype(jnp.float32)
    patches = patches - patches.mean(axis=1, keepdims=True)
    values, vectors = jnp.linalg.eigh(patches.T @ patches / count)
    whiten = (vectors / jnp.sqrt(jnp.maximum(values, 0) + 0.1 * values.mean())) @ vectors.T
    # Blank patches are no filters: those with the most in them are more likely to be drawn.
    energy = jnp.linalg.norm(patches, axis=1)
    chosen = jax.random.choice(keys[3], count, (filters,), p=energy / jnp.sum(energy))
    kernel = patches[chosen] @ whiten
    kernel = kernel / jnp.maximum(jnp.linalg.norm(kernel, axis=1, keepdims=True), 1e-6)
    kernel = whiten @ kernel.T
    kernel = kernel - kernel.mean(axis=0)
    params = {"params": {"kernel": kernel.reshape(_PATCH, _PATCH, channels, filters)}}
    layer = Conv(filters, (_PATCH, _PATCH), padding="VALID", use_bias=False)

    def features(rows):
        found = layer.apply(params, rows.astype(jnp.float32))
        both = jnp.concatenate([jax.nn.relu(found), jax.nn.relu(-found)], axis=-1)
        h, w = (size // _POOLED for size in both.shape[1:3])
        both = both[:, : h * _POOLED, : w * _POOLED]
        cells = both.reshape(-1, _POOLED, h, _POOLED, w, 2 * filters)
        return cells.mean(axis=(2, 4)).reshape(rows.shape[0], -1)

    return features


def network_tangents(
    key: jax.Array,
    x: jax.Array,
    y: jax.Array,
    model: Any,
    size: int,
    weights: jax.Array | None,
    networks: int,
    dimension: int = 2048,
):
    """`tangents` of several networks side by side: a function of inputs.

    Args:
      key: PRNG key, consumed.
      x: `[n, ...]` candidates.
      y: `[n]` their targets.
      model: see `as_model`.
      size: candidates that each network is trained on; 0 leaves it at its initialisation.
      weights: `[n]`, how likely each candidate is to be drawn; None draws evenly.
      networks: how many.
      dimension: numbers per network.
    """
    model, found = as_model(model), []
    x, y = jnp.asarray(x), jnp.asarray(y)
    for network_key in jax.random.split(key, networks):
        sketch_key, draw_key, train_key = jax.random.split(network_key, 3)
        if size:
            rows = jax.random.choice(draw_key, len(x), (size,), replace=False, p=weights)
            steps = max(FEWEST_STEPS, size)  # a hundred passes, of large coresets too
            variables = pretrain(train_key, x[rows], y[rows], model, steps)
        else:
            variables = model.init(train_key, x[:1])
        found.append((sketch_key, variables))

    def function(rows):
        parts = [tangents(*one, rows, model, dimension) for one in found]
        return jnp.concatenate(parts, axis=1)

    return function


@partial(jax.jit, static_argnames=("model", "dimension"))
def tangents(
    key: jax.Array, variables: Variables, x: jax.Array, model: Model, dimension: int = 2048
) -> jax.Array:
    """The neural tangent kernel of one output of a network, from one gradient per input.

    The output is a random combination of all, with signs over sqrt(C). Its gradient with respect to
    all weights is sketched: every weight is assigned to one of d numbers and added to it with a
    random sign (count sketch), which keeps products as d random directions would, for the price of
    one.

    Args:
      key: PRNG key, consumed.
      variables: of the network.
      x: `[n, ...]`.
      model: see `as_model`.
      dimension: d, the number of numbers; the relative error is about sqrt(2 / d).

    Returns:
      `[n, d]`.
    """
    place_key, sign_key, output_key = jax.random.split(key, 3)
    flat, unflatten = ravel_pytree(variables["params"])
    place = jax.random.randint(place_key, flat.shape, 0, dimension)
    sign = jax.random.rademacher(sign_key, flat.shape, flat.dtype)

    def output(weights, row):
        outputs = model.apply({**variables, "params": unflatten(weights)}, row[None])[0].reshape(-1)
        signs = jax.random.rademacher(output_key, outputs.shape, outputs.dtype)
        return outputs @ signs / jnp.sqrt(len(outputs))

    def features(rows):
        gradients = jax.vmap(jax.grad(output), (None, 0))(flat, rows)
        return jax.ops.segment_sum((gradients * sign).T, place, dimension).T

    return in_chunks(features, x, GRADIENTS_AT_ONCE)


def penultimate(key: jax.Array, x: jax.Array, y: jax.Array, model: Any):
    """The penultimate layer of a network trained on (x, y), wrong labels and all.

    Args:
      key: PRNG key, consumed.
      x: `[n, ...]`.
      y: `[n]` classes, or `[n, ...]` targets.
      model: see `as_model`; it must have an embedding.
    """
    embed = embedding_of(model)
    variables = pretrain(key, x, y, model)
    return lambda rows: embed(variables, rows)


def embedding_of(model: Any):
    """`(variables, x [B, ...]) -> [B, d]`, the penultimate layer, or an error if there is none."""
    embed = as_model(model).embed
    if embed is None:
        raise UserError(
            "the penultimate layer is that of a model whose __call__ takes `embed`: use one of "
            "pbcs_jax.nets, or embeddings or a method that do not need it"
        )
    return lambda variables, rows: embed(variables, rows).reshape(rows.shape[0], -1)


def check(embeddings: Any, n: int) -> np.ndarray:
    """The user's own embeddings as an array, or an error."""
    embeddings = np.asarray(embeddings, np.float32)
    if embeddings.ndim != 2 or len(embeddings) != n:
        raise UserError(
            f"embeddings have shape {embeddings.shape}: give ({n}, d), one row per candidate"
        )
    if not np.isfinite(embeddings).all():
        raise UserError("embeddings hold NaN or inf: remove or replace those rows")
    return embeddings
