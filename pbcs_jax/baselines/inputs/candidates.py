"""What every method chooses inputs from."""

from typing import Any, NamedTuple

import numpy as np

from pbcs_jax.choices import inputs as inputs_lib
from pbcs_jax.outer import loop


class InputCandidates(NamedTuple):
    """Samples whose inputs are chosen.

    Attributes:
      x: `[N, ...]` float32.
      y: `[N]` integer classes.
      groups: see `choices.inputs.numbers`; None: each input is a group of its own.
    """

    x: np.ndarray
    y: np.ndarray
    groups: Any = None

    @property
    def columns(self) -> np.ndarray:
        """`[N, d]`, the inputs side by side."""
        return np.asarray(self.x).reshape(len(self.x), -1)

    @property
    def shares(self) -> np.ndarray:
        """`[n, d]`: with scores of inputs, this product gives the mean score of each group."""
        numbers = inputs_lib.numbers(self.groups, np.shape(self.x)[1:]).ravel()
        members = np.eye(numbers.max() + 1)[:, numbers]
        return members / members.sum(1, keepdims=True)


def best(data: InputCandidates, scores: np.ndarray, size: int) -> np.ndarray:
    """The `size` groups whose inputs have the highest mean score; an undefined one counts as 0."""
    of_groups = data.shares @ np.nan_to_num(scores, nan=0.0, posinf=0.0)
    loop.check_size(len(of_groups), size)
    return np.sort(np.argsort(-of_groups, kind="stable")[:size])
