"""Damaged files of a run, and data files that are none."""

import io
import os
import random
import shutil
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.fault_runs import References, Running, command, is_clean, results, write_data
from pbcs_jax import data
from pbcs_jax.errors import UserError
from pbcs_jax.memory import VARIABLE


def _flip(content: bytes, rng: random.Random) -> bytes:
    place = rng.randrange(max(len(content), 1))
    return content[:place] + bytes([content[place] ^ 1 << rng.randrange(8)]) + content[place + 1 :]


DAMAGE: dict[str, Callable[[bytes, random.Random], bytes]] = {
    "flip": _flip,
    "cut": lambda content, rng: content[: rng.randrange(len(content))],
    "empty": lambda content, rng: b"",
    "noise": lambda content, rng: rng.randbytes(len(content)),
    "list": lambda content, rng: b"[]",
    "not UTF-8": lambda content, rng: b"\xff" + content,
    "twice": lambda content, rng: content * 2,
}
UNCHECKED = (".lock", "tensorboard")


def _interrupted(folder: Path, everything: bool) -> None:
    """Leaves of a finished run what a killed one has."""
    for name in ("summary.json", "report.html", "methods/stratified.json"):
        (folder / name).unlink()
    if everything:  # of the methods: only checkpoints are left
        shutil.rmtree(folder / "methods")
        (folder / "coreset.npz").unlink()


def damaged(of: References, numbers: range) -> dict[str, int]:
    """One file of a run is damaged, and the run is started again."""
    tally = {"damaged files": len(numbers), "same result": 0, "refused": 0, "wrong": 0}
    for number in numbers:
        rng = random.Random(f"damage-{number}")
        kind = ("network", "kernel", "network", "kernel", "judging", "sweep")[number % 6]
        folder = of.place / f"damaged-{number}"
        before = of.halfway if kind == "judging" else of.place / f"{kind}-0"
        shutil.copytree(before, folder, symlinks=True)
        if number % 6 in (2, 3):
            _interrupted(folder, everything=number % 12 >= 6)
        files = [f for f in sorted(folder.rglob("*")) if f.is_file() and f.stat().st_size]
        files = [f for f in files if not any(part in str(f) for part in UNCHECKED)]
        file, how = rng.choice(files), rng.choice(list(DAMAGE))
        file.write_bytes(DAMAGE[how](file.read_bytes(), rng))
        done = Running(command(kind, of.data, folder)).wait()
        same = done.code == 0 and results(folder) == of.results[kind]
        if is_clean(done) and (done.code or same):
            tally["same result" if same else "refused"] += 1
        else:
            tally["wrong"] += 1
            print(number, file, how, done, file=sys.stderr)
        shutil.rmtree(folder)
    return tally


def bad_data(count: int) -> dict[str, Any]:
    """Files that are no data: each refused in one line, or read as what they hold."""
    rng = random.Random(2)
    tally: dict[str, Any] = {"data files": 0, "refused": 0, "read the same": 0, "wrong": 0}
    with tempfile.TemporaryDirectory() as place:
        good = write_data(Path(place, "good.npz"))
        whole, bad = data.load("npz", path=str(good)), Path(place, "bad.npz")
        cases = {**_made(Path(place))}
        for number in range(count - len(cases)):
            how = list(DAMAGE)[number % len(DAMAGE)]
            cases[f"{how} {number}"] = DAMAGE[how](good.read_bytes(), rng)
        slowest = 0.0
        for name, content in cases.items():
            path = str(bad) if isinstance(content, bytes) else content
            if isinstance(content, bytes):
                bad.write_bytes(content)
            began = time.monotonic()
            try:
                found = data.load("npz", path=path)
                same = all(np.array_equal(getattr(found, n), getattr(whole, n)) for n in _ARRAYS)
                tally["read the same" if same else "wrong"] += 1
                if not same:
                    print(name, "gives other data", file=sys.stderr)
            except UserError as error:
                tally["refused"] += 1
                if "\n" in str(error):
                    tally["wrong"] += 1
            except BaseException as error:
                tally["wrong"] += 1
                print(name, repr(error), file=sys.stderr)
            tally["data files"] += 1
            slowest = max(slowest, time.monotonic() - began)
            if name == "zip bomb":
                tally["zip bomb refused, s"] = round(time.monotonic() - began, 3)
    return tally | {"slowest, s": round(slowest, 3)}


_ARRAYS = ("x_train", "y_train", "x_test", "y_test")


def _made(place: Path) -> dict[str, bytes | str]:
    """Content of files, or paths."""
    os.mkfifo(place / "fifo")
    x, y = np.zeros((60, 5), np.float32), np.arange(60) % 3
    cases: dict[str, bytes | str] = {
        "fifo": str(place / "fifo"),
        "device": "/dev/zero",
        "folder": str(place),
        "missing": str(place / "none.npz"),
        "long path": "x" * 5000,
        "no path": "",
        "text": b"x,y\n1,2\n",
        "zip bomb": _bomb(),
        "10^15 rows": _with_header(b"(1000000000000000, 5)"),
        "rows below zero": _with_header(b"(-1, 5)"),
        "fewer rows": _with_header(b"(59, 5)"),
    }
    changes: dict[str, dict[str, Any]] = {
        "objects": {"x_train": np.array([{}] * 60)},
        "complex": {"x_train": x.astype(complex)},
        "records": {"x_train": np.zeros(60, [("a", "f4"), ("b", "i4")])},
        "text as inputs": {"x_train": np.array([["a"] * 5] * 60)},
        "times": {"x_train": np.zeros((60, 5), "datetime64[s]")},
        "NaN": {"x_train": x * np.nan},
        "infinite": {"x_train": x + np.inf},
        "one axis": {"x_train": x[:, 0]},
        "five axes": {"x_train": x[:, :, None, None, None]},
        "no rows": {"x_train": x[:0], "y_train": y[:0]},
        "labels too few": {"y_train": y[:50]},
        "one class": {"y_train": y * 0, "y_test": y[:20] * 0},
        "label unknown": {"y_test": y[:20] + 7},
        "half a label": {"y_train": y + 0.5},
    }
    for name, change in changes.items():
        buffer = io.BytesIO()
        arrays = {"x_train": x, "y_train": y, "x_test": x[:20], "y_test": y[:20]} | change
        np.savez(buffer, allow_pickle=True, **arrays)  # type: ignore[arg-type]
        cases[name] = buffer.getvalue()
    return cases


def _bomb() -> bytes:
    """256 MB of zeros in 1 MB; 128 MB are allowed here."""
    os.environ[VARIABLE] = "0.125"
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        with archive.open("x_train.npy", "w", force_zip64=True) as file:
            np.lib.format.write_array_header_1_0(
                file, {"descr": "<f4", "fortran_order": False, "shape": (1 << 24, 4)}
            )
            for _ in range(16):
                file.write(bytes(1 << 24))
        for name in _ARRAYS[1:]:
            archive.writestr(f"{name}.npy", b"")
    return buffer.getvalue()


def _with_header(shape: bytes) -> bytes:
    """An archive whose inputs say that they have another shape, all checksums right."""
    buffer = io.BytesIO()
    array = io.BytesIO()
    np.save(array, np.zeros((60, 5), np.float32))
    changed = array.getvalue().replace(b"(60, 5), }" + b" " * (len(shape) - 7), shape + b", }")
    with zipfile.ZipFile(buffer, "w") as archive:
        for name in _ARRAYS:
            archive.writestr(f"{name}.npy", changed)
    return buffer.getvalue()
