"""From scores to choices."""

import numpy as np

from pbcs_jax.baselines.samples.scores import highest, highest_of_each_class


def test_the_highest_by_a_loop():
    scores = np.random.default_rng(0).integers(0, 5, 40).astype(float)  # many ties
    rest, chosen = list(range(40)), []
    for _ in range(13):
        best = rest[0]
        for i in rest:
            if scores[i] > scores[best]:
                best = i
        rest.remove(best)
        chosen.append(best)
    assert highest(scores, 13).tolist() == sorted(chosen)


def test_the_highest_of_each_class_is_the_highest_in_it():
    rng = np.random.default_rng(1)
    scores, y = rng.integers(0, 6, 50).astype(float), rng.choice([0, 2, 3], 50)
    wanted = np.array([4, 0, 1, 7])
    chosen = []
    for c in range(4):
        members = [i for i in range(50) if y[i] == c]
        chosen += sorted(members, key=lambda i: -scores[i])[: wanted[c]]
    assert highest_of_each_class(scores, y, wanted).tolist() == sorted(chosen)
