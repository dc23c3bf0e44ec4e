"""Tables of accuracy on the pages of `docs/results/`, from the committed JSON.

Each function returns a table in Markdown; `benchmarks.pages` puts it where the page asks for it.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import measure, peer_tables

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
DASH = "\N{EN DASH}"
NAMES = {
    "pbcs": "**PBCS**",
    "whole": "full-data training",
    "greedy": "greedy bilevel (Borsos et al.)",
    "herding": "herding (iCaRL)",
    "kcenter": "k-center",
    "craig": "CRAIG",
    "el2n": "EL2N",
    "f_score": "F-score",
    "mrmr": "mRMR",
    "mutual_information": "mutual information",
    "cbrs": "CBRS",
    "der++": "DER++",
    "gradient_matching": "gradient matching",
}
"""What a method is called on a page; others have their own name."""


def load(name: str) -> Any:
    """One file of results."""
    return json.loads((RESULTS / f"{name}.json").read_text("utf-8"))


def title(method: str) -> str:
    """The name of a method on a page."""
    return NAMES.get(method, method)


def percent(value: float, digits: int = 1) -> str:
    """
    >>> percent(0.9571, 2)
    '95.71'
    """
    return f"{100 * value:.{digits}f}"


def spread(values: Sequence[float], digits: int = 1) -> str:
    """Mean and standard deviation in percent.

    >>> spread([0.9, 0.92])
    '91.0 ± 1.0'
    """
    return f"{percent(float(np.mean(values)), digits)} ± {percent(float(np.std(values)), digits)}"


def lead(own: Sequence[float], other: Sequence[float], digits: int = 2) -> str:
    """The mean difference in points ± its standard error, over the seeds that both have.

    >>> lead([0.93, 0.95], [0.91, 0.91, 0.5])
    '+3.00 ± 1.00'
    """
    pairs = 100 * np.array([a - b for a, b in zip(own, other, strict=False)])
    error = np.std(pairs, ddof=1) / np.sqrt(len(pairs))
    return f"{np.mean(pairs):+.{digits}f} ± {error:.{digits}f}"


def per_seed(record: Mapping[str, Any]) -> list[float]:
    """Accuracy with each seed, of a record with the networks of each, or with their means."""
    if "networks" in record:
        return [float(np.mean(own)) for own in record["networks"]]
    return list((record.get("test_accuracy") or record)["runs"])


def _bold(texts: Sequence[str], values: Sequence[float]) -> list[str]:
    best = max(values)
    pairs = zip(texts, values, strict=True)
    return [f"**{text}**" if value == best else text for text, value in pairs]


def _ordered(by_method: Mapping[str, Any]) -> list[str]:
    """Methods, the best first."""
    return sorted(by_method, key=lambda name: -np.mean(per_seed(by_method[name])))


def published(table: str, setting: str) -> dict[str, float]:
    """What the paper has, by method."""
    paper = json.loads((ROOT / "pbcs_jax" / "report" / "paper.json").read_text("utf-8"))
    (item,) = (one for one in paper["items"] if one["name"] == table)
    (row,) = (one for one in item["rows"] if one["setting"] == setting)
    return row["published"]


def sizes(name: str) -> Callable[[], str]:
    """Every method at size 100, judged by the ConvNet and by the MLP."""

    def table() -> str:
        ((_, point),) = load(name)["points"].items()
        methods = point["methods"]
        rows = []
        for method in _ordered(methods):
            record = methods[method]
            runs = ", ".join(percent(run) for run in per_seed(record))
            texts = [spread(per_seed(record), 2), runs, spread(record["mlp_accuracy"]["runs"], 2)]
            rows.append([title(method), *texts])
        nets = [published("Table 3", f"MNIST (100), {net}") for net in ("ConvNet", "MLP")]
        pair = [f"{net['uniform']:.2f} -> {net['pbcs']:.2f}" for net in nets]
        rows.append(
            ["published: random -> coreset (best epoch on the test set)", pair[0], "", pair[1]]
        )
        return measure.markdown(["method", "ConvNet", "per seed", "MLP 784-100-100-10"], rows)

    return table


def transfer() -> str:
    """Uniform draws, PBCS and the best other method, for the ConvNet and the MLP."""
    rows = []
    for n, name in (("10,000", "mnist_100_of_10000"), ("1,000 †", "mnist_100_of_1000")):
        ((_, point),) = load(name)["points"].items()
        methods = point["methods"]
        for net, metric in (("ConvNet", "test_accuracy"), ("MLP", "mlp_accuracy")):
            means = {method: record[metric]["mean"] for method, record in methods.items()}
            gain = " -> ".join(percent(means.pop(m), 2) for m in ("uniform", "pbcs"))
            best = max(means, key=means.__getitem__)
            rows.append([n, net, gain, f"{title(best)} {percent(means[best], 2)}"])
    for net in ("ConvNet", "MLP"):
        own = published("Table 3", f"MNIST (100), {net}")
        rows.append(["published ‡", net, f"{own['uniform']:.2f} -> {own['pbcs']:.2f}", ""])
    return measure.markdown(
        ["100 images chosen from", "network", "uniform -> PBCS", "best other method"], rows
    )


def _corrupted() -> dict[str, dict[str, Any]]:
    heads = {"symmetric 0.2": "sym. 20 %", "symmetric 0.5": "sym. 50 %"}
    heads |= {"pairwise 0.2": "pairw. 20 %", "pairwise 0.5": "pairw. 50 %"}
    noise = load("mnist_1000_corrupted")["noise"]
    return {head: noise[key] for key, head in heads.items()}


def label_noise() -> str:
    """Accuracy with wrong labels: the mean, and each seed."""
    columns = _corrupted()
    names = _ordered(columns["sym. 50 %"])
    rows = {name: [title(name)] for name in names}
    for methods in columns.values():
        runs = [per_seed(methods[name]) for name in names]
        means = [float(np.mean(own)) for own in runs]
        for name, own, text in zip(
            names, runs, _bold([percent(m) for m in means], means), strict=True
        ):
            seeds = f" ({', '.join(map(percent, own))})" if len(own) > 1 else ""
            rows[name].append(text + seeds)
    return measure.markdown(["method", *columns], rows.values())


def wrong_labels() -> str:
    """Wrong labels among what was trained on, for each seed."""
    columns = _corrupted()
    rows = [
        [title(name)]
        + [
            ", ".join(percent(w) for w in methods[name]["wrong_labels"]) + " %"
            for methods in columns.values()
        ]
        for name in _ordered(columns["sym. 50 %"])
    ]
    return measure.markdown(["method", *columns], rows)


def imbalance() -> str:
    """Accuracy with unbalanced classes; the lead of PBCS ± its standard error over the seeds."""
    columns = load("mnist_1000_corrupted")["imbalance"]
    columns = {factor: columns[factor] for factor in ("50", "200")}
    rows = []
    for name in _ordered(columns["200"]):
        line = [title(name)]
        for methods in columns.values():
            own, ours = per_seed(methods[name]), per_seed(methods["pbcs"])
            text = percent(float(np.mean(own)), 2)
            if len(own) > 1:
                text += f" ({', '.join(map(percent, own))})"
                text += "" if name == "pbcs" else f"; {lead(ours, own)}"
            line.append(text)
        rows.append(line)
    return measure.markdown(["method", *(f"imbalance {factor}" for factor in columns)], rows)


def all_of_mnist() -> str:
    """1,000 of 59,900 with pairwise noise."""
    runs = [run for run in load("mnist_1000_of_60000_pairwise").values() if "methods" in run]
    accuracy = {
        name: [run["methods"][name]["test_accuracy"]["mean"] for run in runs]
        for name in ("pbcs", "uniform", "whole")
    }
    rows = []
    for name, own in accuracy.items():
        text = f"{percent(float(np.mean(own)))} ({percent(min(own))} to {percent(max(own))})"
        wrong = [percent(run["methods"][name]["wrong_labels"]) for run in runs]
        ahead = "" if name == "pbcs" else lead(accuracy["pbcs"], own, 1)
        rows.append([title(name), text, ahead, ", ".join(wrong) + " %"])
    heads = ["five seeds", "ConvNet, mean (range)", "lead of PBCS ± standard error"]
    return measure.markdown([*heads, "wrong labels per seed"], rows)


def cifar10() -> str:
    """500 of 5,000, clean and with noise."""
    found, rows = load("cifar10_500_of_5000"), []
    for label, key in (("clean", "cifar10"), ("40 % symmetric noise", "cifar10_noise")):
        methods = found[f"configs/{key}.py"]["methods"]
        own, other = (per_seed(methods[name]) for name in ("pbcs", "uniform"))
        wrong = [methods[name].get("wrong_labels") for name in ("pbcs", "uniform")]
        texts = [percent(value["mean"]) + " %" if value else "" for value in wrong]
        means = [percent(float(np.mean(values))) for values in (own, other)]
        rows.append([label, f"**{means[0]}**", means[1], lead(own, other, 1), *texts])
    heads = ["", "PBCS", "uniform", "difference ± standard error"]
    return measure.markdown([*heads, "wrong labels, PBCS", "wrong labels, uniform"], rows)


def input_title(method: str) -> str:
    """The name of a way to choose inputs, where greedy is the library's own."""
    return {"greedy": "greedy", "uniform": "random"}.get(method) or title(method)


def pixels(kind: str) -> Callable[[], str]:
    """Every method at five numbers of pixels; the best of each is bold."""

    def table() -> str:
        points = load("mnist_features")[kind]["points"]
        names = list(next(iter(points.values())))
        columns = [[per_seed(point[name]) for name in names] for point in points.values()]
        cells = [
            _bold([spread(own) for own in column], [float(np.mean(own)) for own in column])
            for column in columns
        ]
        rows = [
            [input_title(name), *line, percent(float(np.mean([np.mean(c[i]) for c in columns])), 2)]
            for i, (name, line) in enumerate(zip(names, zip(*cells, strict=True), strict=True))
        ]
        counts = [point.partition("=")[2] for point in points]
        return measure.markdown([f"{kind}, pixels", *counts, "mean"], rows)

    return table


def pixel_leads() -> str:
    """The lead of PBCS with noisy pixels."""
    points, others = load("mnist_features")["noise"]["points"], ("mrmr", "f_score", "greedy")
    rows = [
        [point.partition("=")[2]]
        + [lead(per_seed(methods["pbcs"]), per_seed(methods[other])) for other in others]
        for point, methods in points.items()
    ]
    return measure.markdown(["pixels", *(f"over {input_title(other)}" for other in others)], rows)


def kernel_then_network() -> str:
    """Ridge regression, a network, and one after the other."""
    found = load("kernel_then_network")
    sides = {"kernel": "kernel", "network": "network (MLP)"}
    sides["kernel_then_network"] = "kernel, then network"
    rows: list[list[str]] = []
    for label, key in (("clean", "clean"), ("50 % symmetric noise", "noise")):
        by_side = {
            re.findall(r"objective=(\w+)", point)[0]: own["methods"]["pbcs"]
            for point, own in found[key]["points"].items()
        }
        own = [by_side[side] for side in sides]
        means = [record["test_accuracy"]["mean"] for record in own]
        texts = _bold([percent(mean) for mean in means], means)
        pairs = zip(texts, own, strict=True)
        rows.append([label, *(f"{text} ({record['seconds']:.0f})" for text, record in pairs)])
        if key == "noise":
            wrong = [percent(record["wrong_labels"]["mean"]) + " %" for record in own]
            rows.append(["wrong labels under noise", *wrong])
    return measure.markdown(["", *sides.values()], rows)


KINDS = {"normal": "clean", "20 % noise": "20 % noise", "imbalance 50": "imbalance 50"}
"""What a column of Tables 1 and 2 is called in the paper, and here."""


def kind_of(command: str) -> str:
    """Which of `KINDS` a command runs.

    >>> kind_of("python launch.py --config=configs/permmnist.py:noise --config.seed=1")
    '20 % noise'
    """
    preset = re.search(r"--config=\S+?\.py(?::(\w+))?(?:\s|$)", command)
    names = {"noise": "20 % noise", "imbalance": "imbalance 50"}
    return names.get(preset[1] or "", "normal") if preset else "normal"


def trained_on(command: str, everything: str) -> str:
    """On what a command trains its networks, and with which ridge, if it says so."""
    rows = "selected" if "train_on=selected" in command else everything
    ridge = re.search(r"kernel\.ridge=(\d+)", command)
    return rows + (f", ridge {ridge[1]}" if ridge else "")


def replay_table(file: str, table: str, everything: str) -> Callable[[], str]:
    """Tables 1 and 2 on PermMNIST: mean ± standard deviation, in brackets the number of seeds."""

    def made() -> str:
        lines: dict[tuple[str, str], dict[str, Mapping[str, Any]]] = {}
        for column in load(file)["columns"].values():
            for method, record in column["methods"].items():
                key = method, trained_on(column["command"], everything)
                lines.setdefault(key, {})[kind_of(column["command"])] = record
        shown = [kind for kind in KINDS if any(kind in own for own in lines.values())]
        rows = []
        for (method, rows_used), own in sorted(
            lines.items(), key=lambda line: line[0][0] != "pbcs"
        ):
            cells = [f"{title(method)}, {rows_used}"]
            for kind in shown:
                number = published(table, f"PermMNIST, {kind}").get(method)
                cells.append(_seeds(own[kind]) if kind in own else DASH)
                cells.append(DASH if number is None else f"{number:.2f}")
            wrong = own.get("20 % noise", {}).get("columns", {})
            texts = [wrong.get("wrong_labels", np.nan) * 100, wrong.get("wrong_labels_in_training")]
            cells.append(f"{texts[0]:.1f} / {texts[1]:.1f}" if wrong else DASH)
            rows.append(cells)
        heads = [part for kind in shown for part in (KINDS[kind], "published")]
        heads = ["method, trained on", *heads, "wrong in memory / training, %"]
        return measure.markdown(heads, rows)

    return made


def _seeds(record: Mapping[str, Any]) -> str:
    (runs,) = record["runs"].values()
    return f"{spread(runs, 2)} ({len(runs)})"


def suspects() -> str:
    """The same of both files."""
    files = ("suspects", "suspects_cifar10")
    return suspect_table({cell: own for f in files for cell, own in load(f)["cells"].items()})


def suspect_table(cells: Mapping[str, Mapping[str, Sequence[Mapping[str, float]]]]) -> str:
    """Average precision of the candidates ranked by how wrong their labels look."""
    rows = []
    for cell, methods in cells.items():
        for name, runs in methods.items():
            own = [run["average_precision"] for run in runs]
            error = peer_tables.score(own).error
            text = percent(float(np.mean(own))) + (f" ± {percent(error)}" if error else "")
            seconds = np.mean([run["seconds"] for run in runs])
            rows.append([cell, name, len(own), text, f"{seconds:.1f}"])
    return measure.markdown(["cell", "method", "seeds", "average precision, %", "seconds"], rows)


def presets() -> str:
    """'auto' beside our own presets, in their time."""
    names = {"clean": "mnist:best", "50 % noise": "mnist_noise:kernel"}
    names["imbalance 50"] = "mnist_imbalance:kernel"
    found, rows = load("auto")["parts"]["presets"], []
    for problem, preset in names.items():
        line = [problem, f"`{preset}`"]
        for side in ("preset", "auto"):
            own = [run[side] for run in found[problem].values()]
            score = peer_tables.score([run["network"] for run in own])
            seconds = [np.mean([run[key] for run in own]) for key in ("seconds", "compile_seconds")]
            line.append(f"{percent(score.mean)} ± {percent(score.error or 0.0)}")
            line.append(" + ".join(f"{value:.0f}" for value in seconds))
        rows.append(line)
    clock = "seconds + compiling"
    return measure.markdown(["problem", "preset", "its accuracy", clock, "auto", clock], rows)


def peers(name: str, seeds: int) -> Callable[[], str]:
    """Every method of one data set, beside other packages."""

    def table() -> str:
        from benchmarks import peer_methods

        found = load("peers")["cells"]
        cells = [cell for cell in found if cell.startswith(f"{name}, ")]
        known = [peer_tables.VALIDATION, *peer_methods.SAMPLES]
        rows = [method for method in known if any(method in found[cell] for cell in cells)]
        uses = {label: method.uses_validation for label, method in peer_methods.SAMPLES.items()}
        return peer_tables.table(found, cells, rows, seeds, uses)

    return table
