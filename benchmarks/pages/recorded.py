"""What the committed results say about the paper's figures and tables, for the book.

`benchmarks.pages` writes it to `pbcs_jax/report/recorded.json`; see `pbcs_jax.report.paper.Found`.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from benchmarks.pages.replay import kind_of, trained_on
from benchmarks.pages.shared import load, per_seed
from pbcs_jax.report.paper import spread

_SAMPLES = {"experiment": "summarization", "dataset": "mnist"}
_CLEAN = {"noise.kind": "none", "imbalance.factor": 1.0}
_KINDS = {
    "normal": _CLEAN,
    "20 % noise": {"noise.kind": "symmetric", "noise.rate": 0.2, "imbalance.factor": 1.0},
    "imbalance 50": {"noise.kind": "none", "imbalance.factor": 50.0},
}
_FULL = "python launch.py --config=configs/mnist_corrupted.py:full"
_NPZ = "--config.data.source=npz --config.data.path=mnist.npz"


def found() -> list[dict[str, Any]]:
    """All of it, as the fields of a `Found` without its link."""
    return [
        *_sizes(),
        *_all_of_mnist(),
        *_corrupted(),
        *_cifar10(),
        *_pixels(),
        *_replay(),
        *_time(),
    ]


def _one(
    file: str,
    command: str,
    keys: Mapping[str, Any],
    methods: Mapping[str, Any],
    about: str,
    warning: str = "",
) -> dict[str, Any]:
    return {
        "source": f"benchmarks/results/{file}.json",
        "command": command,
        "keys": dict(keys),
        "methods": dict(methods),
        "about": f"{about}, {file}.json",
        "warning": warning,
    }


def _seeds(counts: Sequence[int]) -> str:
    few, many = min(counts), max(counts)
    return f"{many} seeds" if few == many else f"{few} to {many} seeds"


def _sizes() -> Iterator[dict[str, Any]]:
    command = f"python launch.py --config=configs/mnist_sizes.py:full {_NPZ}"
    for file, of, warning, more in (
        ("mnist_100_of_10000", "10,000", "", ""),
        ("mnist_100_of_1000", "1,000", "an earlier network judged", _EARLIER),
    ):
        ((_, point),) = load(file)["points"].items()
        methods = {
            name: {key: value for key, value in record.items() if key != "seconds"}
            for name, record in point["methods"].items()
        }
        about = (
            f"100 of {of}, {_seeds([len(r['test_accuracy']['runs']) for r in methods.values()])}"
        )
        keys = {**_SAMPLES, **_CLEAN, "size": 100, "evaluation.model": "convnet"}
        yield _one(file, more or command, keys, methods, about, warning)


_EARLIER = (
    f"python launch.py --config=configs/mnist_sizes.py {_NPZ} "
    "--config.kernel.embeddings=patches+ntk --config.model.dropout=0 "
    '--config.sweep.points="(\'coreset_size=100\',)" --config.sweep.seeds="(0,1,2,3,4)" '
    "--config.evaluation.transfer=\"('mlp',)\" --config.evaluation.num_seeds=2"
)


def _all_of_mnist() -> Iterator[dict[str, Any]]:
    file = "mnist_1000_of_60000_pairwise"
    runs = [run for run in load(file).values() if "methods" in run]
    methods = {
        name: {"test_accuracy": spread([r["methods"][name]["test_accuracy"]["mean"] for r in runs])}
        for name in runs[0]["methods"]
    }
    keys = {**_SAMPLES, "noise.kind": "pairwise", "noise.rate": 0.3, "imbalance.factor": 1.0}
    about = f"1,000 of 59,900, {len(runs)} seeds"
    command = next(run["command"] for run in runs if "command" in run)
    yield _one(file, command, keys, methods, about, "an earlier network judged")


def _corrupted() -> Iterator[dict[str, Any]]:
    file = "mnist_1000_corrupted"
    results = load(file)
    for setting, by_method in results["noise"].items():
        kind, rate = setting.split()
        keys = {**_SAMPLES, "noise.kind": kind, "noise.rate": float(rate), "imbalance.factor": 1.0}
        point = f"\"--config.sweep.points=('noise.kind={kind} noise.rate={rate}',)\""
        yield _of_networks(file, f"{_FULL} {_NPZ} {point}", keys, by_method, "1,000 of 5,000")
    for factor, by_method in results["imbalance"].items():
        keys = {**_SAMPLES, "noise.kind": "none", "imbalance.factor": float(factor)}
        about = "1,000 of what is left of 20,000"
        yield _of_networks(file, f"{_FULL} {_NPZ}", keys, by_method, about)


def _of_networks(
    file: str, command: str, keys: Mapping[str, Any], by_method: Mapping[str, Any], about: str
) -> dict[str, Any]:
    methods = {name: {"test_accuracy": spread(per_seed(own))} for name, own in by_method.items()}
    seeds = _seeds([len(per_seed(own)) for own in by_method.values()])
    return _one(file, command, keys, methods, f"{about}, {seeds}")


def _cifar10() -> Iterator[dict[str, Any]]:
    file = "cifar10_500_of_5000"
    results = load(file)
    noise = {"noise.kind": "symmetric", "noise.rate": 0.4, "imbalance.factor": 1.0}
    for name, more in (("cifar10", {**_CLEAN, "size": 500}), ("cifar10_noise", noise)):
        own = results[f"configs/{name}.py"]
        keys = {"experiment": "summarization", "dataset": "cifar10", **more}
        about = f"500 of 5,000, {len(own['seeds'])} seeds"
        yield _one(file, own["command"], keys, own["methods"], about, "reduced network")


def _pixels() -> Iterator[dict[str, Any]]:
    file = "mnist_features"
    for kind, noise, preset in (("clean", 0.0, ""), ("noise", 2.5, ":noise")):
        for point, by_method in load(file)[kind]["points"].items():
            size = int(re.findall(r"=(\d+)", point)[0])
            keys = {"experiment": "features", "dataset": "mnist", "inputs.noise": noise}
            command = f"python launch.py --config=configs/mnist_features.py{preset} {_NPZ} "
            command += '"--config.sweep.seeds=(0,1,2,3,4)"'
            command += " --config.evaluation.num_seeds=4" if preset else ""
            yield _of_networks(file, command, {**keys, "size": size}, by_method, f"{size} of 784")


def _replay() -> Iterator[dict[str, Any]]:
    for file, experiment, everything in (
        ("permmnist", "continual", "task"),
        ("streaming_permmnist", "streaming", "chunk"),
    ):
        columns = load(file)["columns"].values()
        keys = {"experiment": experiment, "dataset": "mnist", "continual.kind": "permuted"}
        by_command: dict[str, dict[str, list[float]]] = {}
        for column in columns:
            for name, own in column["methods"].items():
                runs = next(iter(own["runs"].values()))
                by_command.setdefault(own["command"], {})[name] = runs
        for command, found_by in by_command.items():
            methods = {name: {"test_accuracy": spread(own)} for name, own in found_by.items()}
            about = f"trained on {trained_on(command, everything)}, "
            about += _seeds([len(own) for own in found_by.values()])
            shown = re.sub(r" --workdir=\S+", "", command)
            yield _one(file, shown, {**keys, **_KINDS[kind_of(command)]}, methods, about)


def _time() -> Iterator[dict[str, Any]]:
    results, names = load("baselines"), {"pbcs": "pbcs_kernel", "greedy": "greedy"}
    for own in results["growth"]:
        methods = {names[name]: {"seconds": spread([own[name]["again"]])} for name in names}
        keys = {"experiment": "analysis", "analysis.kind": "time", "size": own["size"]}
        about = f"{own['size']} of {results['candidates']:,}, compiled before"
        yield _one("baselines", "python -m benchmarks.baselines", keys, methods, about)
