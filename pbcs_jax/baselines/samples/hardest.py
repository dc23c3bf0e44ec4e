"""The hardest samples: what a pretrained network is most wrong about."""

import jax
import jax.numpy as jnp
import numpy as np

from pbcs_jax.baselines.checked import checked
from pbcs_jax.baselines.samples.candidates import Candidates
from pbcs_jax.baselines.samples.proxy import pretrained_view
from pbcs_jax.inner import losses


@checked
def hardest(key: jax.Array, data: Candidates, size: int) -> np.ndarray:
    """Those with the largest cross-entropy under a pretrained network, wrong labels among them."""
    logits = pretrained_view(key, data).logits
    found = np.asarray(losses.cross_entropy(logits, jnp.asarray(data.y)))
    return np.argsort(-found, kind="stable")[:size]
