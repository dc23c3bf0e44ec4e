"""Writes the tables of `docs/results/` and `recorded.json` of the book from the committed results.

    python -m benchmarks.pages            rewrites what stands between the marks
    python -m benchmarks.pages --check    changes nothing; exits with 1 and names what differs

A page asks for a table by `<!-- begin NAME -->`; it ends with `<!-- end -->`.
"""

import argparse
import functools
import json
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from benchmarks import page_speed, page_tables, recorded
from benchmarks.page_tables import ROOT, load

PAGES = ROOT / "docs" / "results"
RECORDED = ROOT / "pbcs_jax" / "report" / "recorded.json"
_REGION = re.compile(r"(<!-- begin ([\w-]+) -->\n)(.*?)(<!-- end -->)", re.DOTALL)


def _speed(function: Callable[[page_speed.Found], str], file: str) -> Callable[[], str]:
    return lambda: function(load(file))


TABLES: Mapping[str, Callable[[], str]] = {
    "sizes-10000": page_tables.sizes("mnist_100_of_10000"),
    "sizes-1000": page_tables.sizes("mnist_100_of_1000"),
    "transfer": page_tables.transfer,
    "label-noise": page_tables.label_noise,
    "wrong-labels": page_tables.wrong_labels,
    "imbalance": page_tables.imbalance,
    "all-of-mnist": page_tables.all_of_mnist,
    "cifar10": page_tables.cifar10,
    "pixels-noise": page_tables.pixels("noise"),
    "pixels-clean": page_tables.pixels("clean"),
    "pixel-leads": page_tables.pixel_leads,
    "kernel-then-network": page_tables.kernel_then_network,
    "permmnist": page_tables.replay_table("permmnist", "Table 1", "task"),
    "streaming-permmnist": page_tables.replay_table("streaming_permmnist", "Table 2", "chunk"),
    "suspects": page_tables.suspects,
    "presets": page_tables.presets,
    "peers-mnist": page_tables.peers("mnist", 3),
    "peers-cifar10": page_tables.peers("cifar10", 1),
    "peers-wine": page_tables.peers("wine", 3),
    "peers-breast-cancer": page_tables.peers("breast_cancer", 3),
    "inner": _speed(page_speed.inner, "inner"),
    "outer": _speed(page_speed.outer, "outer"),
    "scaling": _speed(page_speed.scaling, "scaling"),
    "peak-memory": _speed(page_speed.peak_memory, "scaling"),
    "baselines": _speed(page_speed.baselines, "baselines"),
    "growth": _speed(page_speed.growth, "baselines"),
    "time-to-quality": _speed(page_speed.time_to_quality, "time_to_quality"),
    "kernel": _speed(page_speed.kernel, "kernel"),
    "compilation": _speed(page_speed.compilation, "compile"),
    "regression": _speed(page_speed.regression, "regression"),
    "replay": _speed(page_speed.replay, "replay"),
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


if __name__ == "__main__":
    sys.exit(main())
