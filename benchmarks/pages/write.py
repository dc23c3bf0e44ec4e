"""Writes the tables of `docs/results/` and `recorded.json` of the book from the committed results.

    python -m benchmarks.pages            rewrites what stands between the marks
    python -m benchmarks.pages --check    changes nothing; exits with 1 and names what differs

A page asks for a table by `<!-- begin NAME -->`; it ends with `<!-- end -->`.
"""

import argparse
import functools
import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path

from benchmarks.pages import inputs, peers, recorded, replay, samples, speed
from benchmarks.pages.shared import ROOT, load

PAGES = ROOT / "docs" / "results"
RECORDED = ROOT / "pbcs_jax" / "report" / "recorded.json"
_REGION = re.compile(r"(<!-- begin ([\w-]+) -->\n)(.*?)(<!-- end -->)", re.DOTALL)


def _speed(function: Callable[[speed.Found], str], file: str) -> Callable[[], str]:
    return lambda: function(load(file))


TABLES: Mapping[str, Callable[[], str]] = {
    "sizes-10000": samples.sizes("mnist_100_of_10000"),
    "sizes-1000": samples.sizes("mnist_100_of_1000"),
    "transfer": samples.transfer,
    "label-noise": samples.label_noise,
    "wrong-labels": samples.wrong_labels,
    "imbalance": samples.imbalance,
    "all-of-mnist": samples.all_of_mnist,
    "cifar10": samples.cifar10,
    "pixels-noise": inputs.pixels("noise"),
    "pixels-clean": inputs.pixels("clean"),
    "pixel-leads": inputs.pixel_leads,
    "kernel-then-network": samples.kernel_then_network,
    "permmnist": replay.replay_table("permmnist", "Table 1", "task"),
    "streaming-permmnist": replay.replay_table("streaming_permmnist", "Table 2", "chunk"),
    "suspects": peers.suspects,
    "presets": peers.presets,
    "peers-mnist": peers.peers("mnist", 3),
    "peers-cifar10": peers.peers("cifar10", 1),
    "peers-wine": peers.peers("wine", 3),
    "peers-breast-cancer": peers.peers("breast_cancer", 3),
    "peers-ionosphere": peers.peers("ionosphere", 3),
    "peers-pima": peers.peers("pima", 2),
    "inner": _speed(speed.inner, "inner"),
    "outer": _speed(speed.outer, "outer"),
    "scaling": _speed(speed.scaling, "scaling"),
    "peak-memory": _speed(speed.peak_memory, "scaling"),
    "baselines": _speed(speed.baselines, "baselines"),
    "growth": _speed(speed.growth, "baselines"),
    "time-to-quality": _speed(speed.time_to_quality, "time_to_quality"),
    "kernel": _speed(speed.kernel, "kernel"),
    "compilation": _speed(speed.compilation, "compile"),
    "regression": _speed(speed.regression, "regression"),
    "replay": _speed(speed.replay, "replay"),
}
"""What a page can ask for."""


def rewritten(text: str) -> str:
    """A page with its tables made anew.

    >>> rewritten("<!-- begin nothing -->\\n<!-- end -->")
    Traceback (most recent call last):
    KeyError: 'nothing'
    """
    if text.count("<!-- begin ") != len(_REGION.findall(text)):
        raise ValueError(
            "a mark `<!-- begin NAME -->` has no `<!-- end -->`, or a name of other letters"
        )
    return _REGION.sub(lambda m: f"{m[1]}\n{_table(m[2])}\n\n{m[4]}", text)


@functools.cache
def _table(name: str) -> str:
    return TABLES[name]()


def wanted() -> dict[Path, str]:
    """Every file that this command writes, and what it should hold."""
    files = {page: rewritten(page.read_text("utf-8")) for page in sorted(PAGES.glob("*.md"))}
    lines = ",\n".join(json.dumps(one, ensure_ascii=False) for one in recorded.found())
    return files | {RECORDED: f'{{"found": [\n{lines}\n]}}\n'}


def main(arguments: list[str] | None = None) -> int:
    """Writes, or compares."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.pages", description=__doc__)
    parser.add_argument("--check", action="store_true", help="only compare")
    check = parser.parse_args(arguments).check
    differing = [(p, t) for p, t in wanted().items() if not p.exists() or p.read_text("utf-8") != t]
    for path, text in differing:
        print(f"{path.relative_to(ROOT)}: {'differs' if check else 'written'}")
        if not check:
            path.write_text(text, "utf-8")
    return int(check and bool(differing))
