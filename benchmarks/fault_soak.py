"""Many selections in one process: does its memory grow?"""

from typing import Any

import numpy as np

from pbcs_jax import Inner, select_coreset
from pbcs_jax.nets import MLP


def soak(count: int) -> dict[str, Any]:
    """`count` selections by the kernel, then `count` by small networks: megabytes at halves."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 8)).astype(np.float32)
    y = (x[:, 0] > 0).astype(int)
    found: dict[str, Any] = {"selections": 2 * count}
    for kind in ("kernel", "network"):
        sizes = []
        for number in range(count):
            if kind == "kernel":
                options: dict[str, Any] = {"objective": "kernel", "outer_steps": 20}
            else:
                options = {"objective": "network", "outer_steps": 3, "inner": Inner(steps=5)}
            model = MLP(num_classes=2, hidden=(8,))
            select_coreset(number, x, y, model, 10, progress=False, **options)
            sizes.append(_megabytes())
        found[f"{kind}: last half grows, MB"] = round(sizes[-1] - sizes[count // 2 - 1], 1)
        found[f"{kind}: at the end, MB"] = round(sizes[-1])
    return found


def _megabytes() -> float:
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) / 1024 for line in file if line.startswith("VmRSS"))
