"""Tables of chosen samples: accuracy, leads and wrong labels."""

import re
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks import measure
from benchmarks.pages.shared import (
    bold,
    lead,
    load,
    ordered,
    per_seed,
    percent,
    published,
    spread,
    title,
)


def sizes(name: str) -> Callable[[], str]:
    """Every method at size 100, judged by the ConvNet and by the MLP."""

    def table() -> str:
        ((_, point),) = load(name)["points"].items()
        methods = point["methods"]
        rows = []
        for method in ordered(methods):
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
    names = ordered(columns["sym. 50 %"])
    rows = {name: [title(name)] for name in names}
    for methods in columns.values():
        runs = [per_seed(methods[name]) for name in names]
        means = [float(np.mean(own)) for own in runs]
        for name, own, text in zip(
            names, runs, bold([percent(m) for m in means], means), strict=True
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
        for name in ordered(columns["sym. 50 %"])
    ]
    return measure.markdown(["method", *columns], rows)


def imbalance() -> str:
    """Accuracy with unbalanced classes; the lead of PBCS ± its standard error over the seeds."""
    columns = load("mnist_1000_corrupted")["imbalance"]
    columns = {factor: columns[factor] for factor in ("50", "200")}
    rows = []
    for name in ordered(columns["200"]):
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
        texts = bold([percent(mean) for mean in means], means)
        pairs = zip(texts, own, strict=True)
        rows.append([label, *(f"{text} ({record['seconds']:.0f})" for text, record in pairs)])
        if key == "noise":
            wrong = [percent(record["wrong_labels"]["mean"]) + " %" for record in own]
            rows.append(["wrong labels under noise", *wrong])
    return measure.markdown(["", *sides.values()], rows)
