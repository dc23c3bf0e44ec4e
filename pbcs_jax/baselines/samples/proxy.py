"""The network that methods see the candidates through: trained briefly, then fixed."""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp

from pbcs_jax.baselines.samples.candidates import Candidates
from pbcs_jax.compute.chunks import in_chunks
from pbcs_jax.inner.pretrain import pretrain
from pbcs_jax.nets.model import Model, Variables, as_model
from pbcs_jax.objectives.embeddings import CHUNK, embedding_of

# How many uniformly drawn candidates, whatever their labels, the feature extractor is trained on,
# and for how many steps: 19 epochs, after which few wrong labels are learned by heart.
PRETRAINED_ON, STEPS = 1000, 150


class View(NamedTuple):
    """The candidates as a network sees them: `embeddings [n, d]`, `logits [n, num_classes]`."""

    embeddings: jax.Array
    logits: jax.Array


def pretrained_view(key: jax.Array, data: Candidates) -> View:
    """The candidates as seen by a network trained on `PRETRAINED_ON` of them."""
    draw_key, train_key = jax.random.split(key)
    rows = jax.random.permutation(draw_key, len(data.y))[:PRETRAINED_ON]
    x, y = jnp.asarray(data.x), jnp.asarray(data.y)
    return view(data, pretrain(train_key, x[rows], y[rows], data.model, STEPS))


def view(data: Candidates, variables: Variables) -> View:
    """The candidates as seen by the proxy with these variables."""
    return _view(jnp.asarray(data.x), variables, as_model(data.model))


@partial(jax.jit, static_argnames="model")
def _view(x, variables: Variables, model: Model) -> View:
    embed = embedding_of(model)
    # The compiler finds that both are the same network up to its last layer.
    both = lambda rows: View(embed(variables, rows), model.apply(variables, rows)[0])  # noqa: E731
    return in_chunks(both, x, CHUNK)
