"""How long the main job waits for its programs: traced, lowered and compiled.

    python -m benchmarks.compile --out=benchmarks/results/compile.json

`configs/mnist.py` with the bundled images, cut to two outer steps and two training steps of the
judges (loops that are run less often, not programs left out), in a process of its own: with an
empty compilation cache (cold), and again with what that left there (warm). Sums of JAX's own
durations.
"""

import os
import statistics
import subprocess
import sys
import tempfile
from collections import Counter

import jax
from absl import app, flags

from benchmarks import measure
from benchmarks.pages import speed

_OUT = flags.DEFINE_string("out", "benchmarks/results/compile.json", "Where the JSON goes.")
_REPEATS = flags.DEFINE_integer("repeats", 5, "Cold and warm runs of each.", lower_bound=5)

PARTS = {
    "trace": "/jax/core/compile/jaxpr_trace_duration",
    "lower": "/jax/core/compile/jaxpr_to_mlir_module_duration",
    "compile": "/jax/core/compile/backend_compile_duration",
}
JOB = (
    "--config=configs/mnist.py",
    "--config.data.source=bundled",
    "--config.selection.outer_steps=2",
    "--config.evaluation.steps=2",
)
CHILD = "import sys; from benchmarks import compile; compile.child(sys.argv)"


def child(argv: list[str]) -> None:
    """Runs `launch.py` with these arguments, and ends by printing the seconds of each part."""
    seconds: Counter[str] = Counter()
    jax.monitoring.register_event_duration_secs_listener(
        lambda name, duration, **_: seconds.update({name: duration})
    )
    from pbcs_jax.__main__ import run

    sys.argv = argv
    try:
        run()
    finally:
        print(*(seconds[name] for name in PARTS.values()))


def run_job(cache: str) -> list[float]:
    """Seconds of each part, in a process of its own."""
    with tempfile.TemporaryDirectory() as workdir:
        command = [sys.executable, "-c", CHILD, *JOB, f"--workdir={workdir}/run"]
        environment = {**os.environ, "JAX_COMPILATION_CACHE_DIR": cache}
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"the job failed:\n{done.stderr}")
    return [float(part) for part in done.stdout.splitlines()[-1].split()]


def main(argv: list[str]) -> None:
    if len(argv) > 1:
        raise app.UsageError(f"unexpected arguments {argv[1:]}: use --out, --repeats.")
    runs: dict[str, list[list[float]]] = {"cold": [], "warm": []}
    for number in range(_REPEATS.value):
        with tempfile.TemporaryDirectory() as cache:
            for kind in runs:
                runs[kind].append(run_job(cache))
                print(f"{kind} {number + 1}: {sum(runs[kind][-1]):.1f} s", file=sys.stderr)
    results = {}
    for kind, taken in runs.items():
        results[kind] = {"total": statistics.median(map(sum, taken))}
        parts = zip(PARTS, zip(*taken, strict=True), strict=True)
        results[kind] |= {part: statistics.median(values) for part, values in parts}
    print(speed.compilation(results))
    measure.write(_OUT.value, "compile", {"repeats": _REPEATS.value, **results})


if __name__ == "__main__":
    app.run(main)
