"""What every method chooses from."""

import dataclasses
from typing import Any

from pbcs_jax.border import Encoding, check_data


@dataclasses.dataclass(frozen=True)
class Candidates:
    """The candidates, and the network that a method may train on them.

    Attributes:
      x: `[n, ...]` inputs of any kind; float32 from here on.
      y: `[n]` labels of any kind, right or wrong; codes 0..C-1 from here on.
      num_classes: how many there are, where the labels are codes already and a class may be
        missing; 0 counts them.
      model: the proxy that methods train, a flax.linen module whose `__call__` takes `embed`.
      validation: `(x [v, ...], y [v])`, clean held-out data. Only `greedy` uses them, as its outer
        data; the published forms of the others know of none.
      scale: whether tables are standardised.

    >>> Candidates([[0.0], [2.0]], ["no", "yes"]).y.tolist()
    [0, 1]
    """

    x: Any
    y: Any
    num_classes: int = 0
    model: Any = None
    validation: Any = None
    scale: bool = True

    def __post_init__(self):
        encoding = Encoding.codes(self.num_classes) if self.num_classes else None
        data = check_data(self.x, self.y, self.validation, encoding or "classes", scale=self.scale)
        found = (data.x, data.y, data.encoding.num_classes, data.validation, False)
        names = ("x", "y", "num_classes", "validation", "scale")
        for name, value in zip(names, found, strict=True):
            object.__setattr__(self, name, value)

    @property
    def n(self) -> int:
        """How many there are."""
        return len(self.y)
