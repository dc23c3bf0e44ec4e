"""What every method chooses inputs from."""

import dataclasses
from typing import Any

import numpy as np

from pbcs_jax.border import check_data
from pbcs_jax.choices import inputs as inputs_lib


@dataclasses.dataclass(frozen=True)
class InputCandidates:
    """Samples whose inputs are chosen.

    Attributes:
      x: `[N, ...]` inputs of any kind; float32 from here on.
      y: `[N]` labels of any kind; codes 0..C-1 from here on.
      groups: see `choices.inputs.numbers`; None: each input is a group of its own.
      scale: whether tables are standardised.
    """

    x: Any
    y: Any
    groups: Any = None
    scale: bool = True

    def __post_init__(self):
        data = check_data(self.x, self.y, target="classes", scale=self.scale)
        groups = inputs_lib.numbers(self.groups, data.x.shape[1:])
        for name, value in {"x": data.x, "y": data.y, "groups": groups, "scale": False}.items():
            object.__setattr__(self, name, value)

    @property
    def n(self) -> int:
        """How many groups there are."""
        return int(self.groups.max()) + 1

    @property
    def columns(self) -> np.ndarray:
        """`[N, d]`, the inputs side by side."""
        return self.x.reshape(len(self.x), -1)

    @property
    def shares(self) -> np.ndarray:
        """`[n, d]`: with scores of inputs, this product gives the mean score of each group."""
        members = np.eye(self.n)[:, self.groups.ravel()]
        return members / members.sum(1, keepdims=True)


def best(data: InputCandidates, scores: np.ndarray, size: int) -> np.ndarray:
    """The `size` groups whose inputs have the highest mean score; an undefined one counts as 0."""
    of_groups = data.shares @ np.nan_to_num(scores, nan=0.0, posinf=0.0)
    return np.sort(np.argsort(-of_groups, kind="stable")[:size])
