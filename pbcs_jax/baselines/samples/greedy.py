"""Greedy bilevel selection: one sample at a time (Borsos, Mutny and Krause, 2020).

The proxy is kernel logistic regression with the neural tangent kernel of the network. On the k
samples S chosen so far, with weights w,

    alpha(w) = argmin (1/k) sum_{i in S} w_i loss(K_i alpha, y_i) + reg tr(alpha' K alpha)

and the next sample is, of a random few, the one whose weight, now 0, has the most negative
derivative of the outer loss L(alpha(w)). Implicit differentiation gives it: with r = softmax -
one-hot, D the Hessian of the weighted loss in the outputs, and u the function that solves
(Phi_S' D Phi_S + 2 reg) u = dL/dtheta, it is dL/dw_j = -(1/k) r_j . u(x_j), for j in S or not.

D = G G' has a factor in closed form, and z = G' u(S) solves (G' K G + 2 reg) z = G' K_So r_o, which
is symmetric, takes one product with K an iteration of conjugate gradients, and loses nothing to
cancellation if reg is 1e-7. From z all derivatives follow.
"""

import math
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.scipy.sparse.linalg import cg

from pbcs_jax.baselines.checked import checked
from pbcs_jax.baselines.samples.candidates import Candidates
from pbcs_jax.baselines.samples.newton import newton_step
from pbcs_jax.nets.model import Model, as_model
from pbcs_jax.objectives.embeddings import tangents

# Conjugate gradients of the implicit gradient: iterations at most, and the residual to stop at,
# relative to the first.
GRADIENT_ITERATIONS, GRADIENT_TOLERANCE = 50, 1e-3
# Newton steps after an addition; after a step of the weights there is one.
FIRST_STEPS = 4
# Products with a kernel that has room for K cost K² from the first sample on. So there are a few
# compiled programs, each with so many times the last's room; not many, for each takes seconds.
GROWTH, SMALLEST = 1.6, 128
_TINY = 1e-30


class Data(NamedTuple):
    """What is chosen from, and what it is judged by.

    Attributes:
      features: `[n, d]`; their products are the kernel.
      y: `[n]` classes.
      outer_features: `[m, d]`.
      outer_y: `[m]`.
    """

    features: jax.Array
    y: jax.Array
    outer_features: jax.Array
    outer_y: jax.Array


class Settings(NamedTuple):
    """See `greedy`."""

    inner_reg: float
    weight_steps: int
    num_candidates: int


class Solution(NamedTuple):
    """Of the inner problem: `alpha`, `z` and `p`, the softmax of the outputs, each `[k, C]`."""

    alpha: jax.Array
    z: jax.Array
    p: jax.Array


class State(NamedTuple):
    """The samples chosen so far, in rows that are filled one by one.

    Attributes:
      count: k.
      chosen: `[capacity]` indices; n where there is none yet.
      kernel: `[capacity, capacity]` products of their features; 0 where there is none yet.
      outer_kernel: `[m, capacity]`, the same with the outer data.
      solution: of the last weights.
    """

    count: jax.Array
    chosen: jax.Array
    kernel: jax.Array
    outer_kernel: jax.Array
    solution: Solution


@checked
def greedy(
    key: jax.Array,
    data: Candidates,
    size: int,
    *,
    start_size: int = 10,
    inner_reg: float = 1e-7,
    weight_steps: int = 10,
    num_candidates: int = 200,
    max_outer: int = 1000,
) -> np.ndarray:
    """Samples chosen one after the other, each the best of a random few by the bilevel gradient.

    The defaults are those of the published experiment on MNIST; its continual learning has
    `start_size=1, inner_reg=1e-3, weight_steps=1`. As in the published code, the weights begin at 1
    after each addition. The time grows with the cube of the size once the kernel's products rule.

    Args:
      key: PRNG key, consumed.
      data: the candidates. The outer data are `data.validation` if there is any, else candidates.
      size: K.
      start_size: so many are drawn at random first.
      inner_reg: of the inner problem; the kernel is scaled to a mean of 1 on its diagonal.
      weight_steps: Adam steps at 0.05 on the weights after each addition.
      num_candidates: how many random candidates compete for each place.
      max_outer: of the candidates, at most so many, drawn at random, are outer data.
    """
    n = len(data.y)
    feature_key, outer_key, start_key, key = jax.random.split(key, 4)
    model, x, y = as_model(data.model), jnp.asarray(data.x), jnp.asarray(data.y)
    if data.validation is None:
        outer = jax.random.permutation(outer_key, n)[:max_outer]
        features = kernel_features(feature_key, x, model)
        problem = Data(features, y, features[outer], y[outer])
    else:
        both = jnp.concatenate([x, jnp.asarray(data.validation[0])])
        features = kernel_features(feature_key, both, model)
        outer_y = jnp.asarray(data.validation[1]).astype(y.dtype)
        problem = Data(features[:n], y, features[n:], outer_y)
    settings = Settings(inner_reg, weight_steps, min(num_candidates, n))
    first = jax.random.choice(start_key, n, (min(start_size, size),), replace=False)
    state = start(problem, first, data.num_classes)
    for capacity in capacities(size):
        if capacity > len(first):
            state = grow(state, capacity, n)
            state = extend(key, problem, state, min(capacity, size), settings)
    return np.asarray(state.chosen[:size])


@partial(jax.jit, static_argnames="model")
def kernel_features(key: jax.Array, x: jax.Array, model: Model) -> jax.Array:
    """Features `[n, d]` of `x [n, ...]`: their products are a fresh network's tangent kernel.

    Scaled so that the product of a row with itself has the mean 1.
    """
    init_key, sketch_key = jax.random.split(key)
    features = tangents(sketch_key, model.init(init_key, x[:1]), x, model)
    return features / jnp.sqrt(jnp.mean(jnp.sum(features**2, axis=1)))


def capacities(size: int) -> list[int]:
    """Increasing numbers of samples to have room for, of which the last is `size`.

    >>> capacities(400)
    [99, 157, 250, 400]
    """
    found = [size]
    while found[0] > SMALLEST:
        found.insert(0, math.ceil(found[0] / GROWTH))
    return found


def start(data: Data, chosen: jax.Array, num_classes: int) -> State:
    """The state with the samples `chosen [k]`, and room for no more."""
    rows = data.features[chosen]
    nothing = jnp.zeros((len(chosen), num_classes), rows.dtype)
    count = jnp.asarray(len(chosen), jnp.int32)
    kernel, outer_kernel = rows @ rows.T, data.outer_features @ rows.T
    solution = Solution(nothing, nothing, nothing)
    return State(count, chosen.astype(jnp.int32), kernel, outer_kernel, solution)


def grow(state: State, capacity: int, n: int) -> State:
    """The same with room for `capacity` of the n candidates."""
    more = capacity - len(state.chosen)
    return State(
        state.count,
        jnp.pad(state.chosen, (0, more), constant_values=n),
        jnp.pad(state.kernel, ((0, more), (0, more))),
        jnp.pad(state.outer_kernel, ((0, 0), (0, more))),
        jax.tree.map(lambda leaf: jnp.pad(leaf, ((0, more), (0, 0))), state.solution),
    )


@partial(jax.jit, static_argnames="settings")
def extend(key: jax.Array, data: Data, state: State, size: jax.Array, settings: Settings) -> State:
    """Adds samples until there are `size`, at most as many as there is room for."""

    def one_more(k, state):
        state, gradients, rows = candidate_gradients(
            jax.random.fold_in(key, k), data, state, settings
        )
        return add(data, state, rows[jnp.argmin(gradients)])

    return jax.lax.fori_loop(state.count, size, one_more, state)


def add(data: Data, state: State, row: jax.Array) -> State:
    """The state with one more candidate."""
    k, new = state.count, data.features[row]
    chosen = state.chosen.at[k].set(row)
    products = _chosen_features(data, chosen) @ new
    kernel = state.kernel.at[k].set(products).at[:, k].set(products)
    outer_kernel = state.outer_kernel.at[:, k].set(data.outer_features @ new)
    return State(k + 1, chosen, kernel, outer_kernel, state.solution)


def candidate_gradients(
    key: jax.Array, data: Data, state: State, settings: Settings
) -> tuple[State, jax.Array, jax.Array]:
    """dL/dw of random candidates, after the weights of those chosen have been learned.

    Returns:
      The state with its new solution; `[c]` derivatives, inf for those that are chosen already
      (which are drawn only if fewer than c are free); `[c]` their indices.
    """
    state, weights = learn_weights(data, state, settings)
    priority = jax.random.uniform(key, data.y.shape).at[state.chosen].set(2, mode="drop")
    priority, rows = jax.lax.top_k(-priority, settings.num_candidates)
    gradients = outside_gradients(data, state, weights, rows, settings.inner_reg)
    return state, jnp.where(priority > -2, gradients, jnp.inf), rows


def learn_weights(data: Data, state: State, settings: Settings) -> tuple[State, jax.Array]:
    """A few Adam steps on the weights of those chosen, from 1.

    Returns:
      The state with the solution for the last weights, and these, `[capacity]`.
    """
    is_used = jnp.arange(len(state.chosen)) < state.count
    weights = is_used.astype(state.kernel.dtype)
    optimizer = optax.adam(0.05)
    # The newest sample may be far off, and the weights were others.
    state = solve(data, state, weights, settings.inner_reg, FIRST_STEPS)

    def body(carry, _):
        state, weights, opt_state = carry
        gradient = inside_gradients(data, state, weights)
        updates, opt_state = optimizer.update(gradient, opt_state)
        weights = jnp.where(is_used, jnp.maximum(weights + updates, 0), 0)
        return (solve(data, state, weights, settings.inner_reg, 1), weights, opt_state), None

    carry = state, weights, optimizer.init(weights)
    (state, weights, _), _ = jax.lax.scan(body, carry, None, length=settings.weight_steps)
    return state, weights


def inside_gradients(data: Data, state: State, weights: jax.Array) -> jax.Array:
    """dL/dw `[capacity]` of those chosen; 0 for a weight of 0.

    z_y = sqrt(w_i p_y / k) (u_y - p . u) at the label y of sample i, and r . u = p . u - u_y.
    """
    targets = _targets(data, state)
    scale = weights / state.count
    at_label = jnp.sum(targets * state.solution.z, axis=1)
    factor = jnp.sqrt(scale * jnp.sum(targets * state.solution.p, axis=1))
    return jnp.where(factor > 0, at_label / jnp.maximum(factor, _TINY), 0) / state.count


def outside_gradients(
    data: Data, state: State, weights: jax.Array, rows: jax.Array, reg: float
) -> jax.Array:
    """dL/dw `[c]` of the candidates `rows [c]`, whose weights are 0."""
    chosen, features = _chosen_features(data, state.chosen), data.features[rows]
    alpha, z, p = state.solution
    pulled = data.outer_features.T @ _outer_slope(data, state.outer_kernel @ alpha)
    u = (pulled - chosen.T @ _factor(p, weights / state.count, z)) / (2 * reg)
    outputs = features @ (chosen.T @ alpha)
    residual = jax.nn.softmax(outputs) - jax.nn.one_hot(data.y[rows], outputs.shape[1])
    return -jnp.sum(residual * (features @ u), axis=1) / state.count


def solve(data: Data, state: State, weights: jax.Array, reg: float, newton_steps: int) -> State:
    """The solution for these weights `[capacity]`, from where the last one is."""
    kernel, targets, scale = state.kernel, _targets(data, state), weights / state.count

    def improve(_, alpha):
        return newton_step(kernel, targets, scale, reg, alpha)

    alpha = jax.lax.fori_loop(0, newton_steps, improve, state.solution.alpha)
    p = jax.nn.softmax(kernel @ alpha)

    def operator(z):
        return _factor_transposed(p, scale, kernel @ _factor(p, scale, z)) + 2 * reg * z

    slope = state.outer_kernel.T @ _outer_slope(data, state.outer_kernel @ alpha)
    z, _ = cg(
        operator,
        _factor_transposed(p, scale, slope),
        state.solution.z,
        tol=GRADIENT_TOLERANCE,
        maxiter=GRADIENT_ITERATIONS,
    )
    return state._replace(solution=Solution(alpha, z, p))


def _factor(p: jax.Array, scale: jax.Array, z: jax.Array) -> jax.Array:
    """G z. A sample has G = sqrt(scale) (diag(sqrt p) - p sqrt(p)'); G G' is the loss's Hessian."""
    root = jnp.sqrt(p)
    return jnp.sqrt(scale)[:, None] * (root * z - p * jnp.sum(root * z, axis=1, keepdims=True))


def _factor_transposed(p: jax.Array, scale: jax.Array, v: jax.Array) -> jax.Array:
    """G' v, with the G of `_factor`."""
    inside = v - jnp.sum(p * v, axis=1, keepdims=True)
    return jnp.sqrt(scale)[:, None] * jnp.sqrt(p) * inside


def _outer_slope(data: Data, outputs: jax.Array) -> jax.Array:
    """The derivative `[m, C]` of the mean outer loss with respect to the outputs `[m, C]`."""
    targets = jax.nn.one_hot(data.outer_y, outputs.shape[1], dtype=outputs.dtype)
    return (jax.nn.softmax(outputs) - targets) / len(outputs)


def _targets(data: Data, state: State) -> jax.Array:
    """One-hot labels `[capacity, C]` of those chosen."""
    labels = data.y.at[state.chosen].get(mode="clip")
    return jax.nn.one_hot(labels, state.solution.p.shape[1], dtype=state.kernel.dtype)


def _chosen_features(data: Data, chosen: jax.Array) -> jax.Array:
    """`[capacity, d]`, 0 where there is none."""
    return data.features.at[chosen].get(mode="fill", fill_value=0)
