"""What each of several processes runs in test_processes.py; alone, the same on one."""

import faulthandler
import sys

import numpy as np

import pbcs_jax as pbcs
from pbcs_jax import nets, processes
from pbcs_jax.compute import mesh

# So few that programs are compiled for one number of rows, which is what takes time here.
LABELS = np.arange(16) % 3
SHORT = {"num_masks": 6, "outer_steps": 20}


def selections(x, y):
    """Every objective that is spread over processes: name to probabilities."""
    inner = {"objective": pbcs.Network(pbcs.Inner(steps=4)), **SHORT}
    mlp = nets.MLP(num_classes=3, hidden=(8,))
    guarded = pbcs.Kernel(candidate_weight=1.0)
    asked = {
        "hybrid": (mlp, {**inner, "estimator": "hybrid"}),
        "convnet": (nets.ConvNet(num_classes=3, width=2), inner),
        "rows": (mlp, inner),
        "kernel": (None, {"objective": guarded, "estimator": "hybrid", **SHORT}),
    }
    found = {}
    for name, (net, options) in asked.items():
        held_out = (x[:6], y[:6]) if name == "kernel" else None
        given = pbcs.Rows(lambda rows: x[rows], len(x)) if name == "rows" else x
        result = pbcs.select_coreset(0, given, y, net, 8, held_out, **options)
        found[name] = result.probabilities
        found[f"{name} indices"] = result.indices
    return found


def main(file, coordinator=None, count=None, number=None, differs=""):
    """Writes the probabilities, from process 0."""
    faulthandler.dump_traceback_later(600, exit=True)  # nothing here should wait for ever
    if coordinator:
        processes.start(coordinator, int(count), int(number))
        mesh.LARGEST_GATHERED = 4  # gradients of sixteen candidates are exchanged as those of many
    x = np.random.default_rng(0).normal(size=(16, 16, 16, 1)).astype(np.float32)
    x += 0.5 * LABELS[:, None, None, None]
    y, key = LABELS, 0
    if differs and not processes.is_first():
        x = x + np.float32(1e-3) * (differs == "x")
        y = np.roll(y, 1) if differs == "y" else y
        key = int(differs == "key")
    if differs:
        try:
            pbcs.select_coreset(key, x, y, None, 8, objective="kernel", **SHORT)
        except pbcs.UserError as error:
            print(error)
        return
    found = selections(x, y)
    if processes.is_first():
        np.savez(file, **found)
    faulthandler.cancel_dump_traceback_later()


if __name__ == "__main__":
    main(*sys.argv[1:])
