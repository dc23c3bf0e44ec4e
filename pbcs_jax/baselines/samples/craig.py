"""CRAIG: medoids of the gradients (Mirzasoleiman, Bilmes and Leskovec, 2020)."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from pbcs_jax.baselines.checked import checked
from pbcs_jax.baselines.samples import quotas
from pbcs_jax.baselines.samples.candidates import Candidates
from pbcs_jax.baselines.samples.proxy import View, pretrained_view


@checked
def craig(key: jax.Array, data: Candidates, size: int) -> np.ndarray:
    """Of each class, the samples whose gradients stand for those of all others.

    Maximises `F(S) = sum_i max_{j in S} (d_max - |g_i - g_j|)`, greedily and class by class, with g
    the gradient of the loss with respect to a pretrained network's last layer. F is submodular:
    greedy reaches 1 - 1/e of the largest there is. Each class gets its share of the candidates.

    Args:
      size: K. Memory is quadratic in the largest class: 4 MB for 1,000, 400 MB for 10,000.
    """
    wanted = quotas.proportional(np.bincount(data.y, minlength=data.num_classes), size)
    factors = last_layer_factors(pretrained_view(key, data), jnp.asarray(data.y))
    return medoids(*factors, data.y, wanted)


def medoids(a: jax.Array, b: jax.Array, y: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """`wanted [C]` of each class whose outer products a_i b_i' stand for those of the class.

    Args:
      a: `[n, p]`.
      b: `[n, q]`.
      y: `[n]` classes.
      wanted: `[C]`, none above the number of the class.

    Returns:
      Sorted indices.
    """
    counts = np.bincount(y, minlength=len(wanted))
    order = np.argsort(y, kind="stable")
    # Row c holds the members of class c, filled up with n.
    members = np.full((len(wanted), counts.max()), len(order))
    members[y[order], np.arange(len(order)) - (np.cumsum(counts) - counts)[y[order]]] = order
    is_chosen = _choose((a, b), jnp.asarray(members), jnp.asarray(wanted), int(wanted.max()))
    return np.sort(members[np.asarray(is_chosen)])


def last_layer_factors(view: View, y: jax.Array) -> tuple[jax.Array, jax.Array]:
    """a `[n, C]` and b `[n, d + 1]`: the last layer's gradient is the outer product of their rows.

    Of kernel and bias together: a = softmax - one-hot, b = (embedding, 1).
    """
    a = jax.nn.softmax(view.logits) - jax.nn.one_hot(y, view.logits.shape[1])
    return a, jnp.concatenate([view.embeddings, jnp.ones((len(y), 1))], axis=1)


def gradient_distances(a: jax.Array, b: jax.Array) -> jax.Array:
    """|a_i b_i' - a_j b_j'| of outer products, `[m, m]`, which are never formed.

    Their products are (a_i . a_j)(b_i . b_j).
    """
    products = (a @ a.T) * (b @ b.T)
    squares = jnp.diag(products)
    return jnp.sqrt(jnp.maximum(squares[:, None] + squares - 2 * products, 0))


def facility_location(
    similarity: jax.Array, allowed: jax.Array, steps: jax.Array, most: int
) -> jax.Array:
    """Greedily maximises sum_i max_{j in S} similarity_ij, from an empty S.

    Args:
      similarity: `[m, m]`, at least 0; rows that do not count are 0.
      allowed: `[m]`, which may be chosen, at least `steps` of them.
      steps: how many to choose.
      most: `steps` is at most this.

    Returns:
      `[most]` in the order of the choice; m after the last.
    """

    def body(i, carry):
        chosen, nearest, free = carry
        gain = jnp.sum(jnp.maximum(similarity - nearest[:, None], 0), axis=0)
        best = jnp.argmax(jnp.where(free, gain, -1))
        nearest = jnp.maximum(nearest, similarity[:, best])
        return chosen.at[i].set(best.astype(jnp.int32)), nearest, free.at[best].set(False)

    m = len(similarity)
    start = jnp.full(most, m, jnp.int32), jnp.zeros(m), allowed
    return jax.lax.fori_loop(0, steps, body, start)[0]


@partial(jax.jit, static_argnames="most")
def _choose(factors, members, wanted, most: int):
    """Which of `members [C, m]` are chosen, as booleans, one class after the other."""
    n = len(factors[0])

    def one_class(given):
        rows, steps = given
        is_member = rows < n
        distance = gradient_distances(*(f[jnp.minimum(rows, n - 1)] for f in factors))
        both = is_member[:, None] & is_member
        largest = jnp.max(jnp.where(both, distance, 0))
        similarity = jnp.where(both, largest - distance, 0)
        order = facility_location(similarity, is_member, steps, most)
        return jnp.zeros(len(rows), bool).at[order].set(True, mode="drop")

    return jax.lax.map(one_class, (members, wanted))
