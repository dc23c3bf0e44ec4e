"""The largest losses."""

import jax
import numpy as np

from pbcs_jax import nets
from pbcs_jax.baselines import Candidates
from pbcs_jax.baselines.samples import hardest
from pbcs_jax.baselines.samples.proxy import pretrained_view


def test_it_is_what_a_loop_gives():
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((40, 6)).astype(np.float32), rng.integers(0, 3, 40)
    data = Candidates(x, y, 3, nets.MLP(num_classes=3, hidden=(8,)))
    key = jax.random.key(0)
    loss = []
    for logits, label in zip(np.asarray(pretrained_view(key, data).logits, float), y, strict=True):
        loss.append(np.log(sum(np.exp(value) for value in logits)) - logits[label])
    assert hardest(key, data, 9).tolist() == sorted(np.argsort(loss)[-9:])


def test_a_wrong_label_is_hard():
    truth = np.arange(60) % 3
    noise = np.random.default_rng(0).standard_normal((60, 6)).astype(np.float32) / 4
    x = 9 * np.eye(3, 6, dtype=np.float32)[truth] + noise
    wrong = np.array([3, 17, 44])
    y = truth.copy()
    y[wrong] = (y[wrong] + 1) % 3
    data = Candidates(x, y, 3, nets.MLP(num_classes=3, hidden=(64,)))
    np.testing.assert_array_equal(hardest(jax.random.key(0), data, 3), wrong)
