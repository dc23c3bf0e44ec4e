"""Image data sets of tensorflow-datasets, read without TensorFlow from array_record files.

tensorflow_datasets is imported inside the functions: it costs a third of a second, and a run on
another source should not pay it.
"""

import contextlib
import os
import re
import threading
import urllib.request
from typing import Any, NamedTuple

import numpy as np

from pbcs_jax.data.without_tensorflow import tensorflow_stand_in
from pbcs_jax.errors import UserError, one_line

# A public file of a few kilobytes, part of MNIST, on the host that serves most of tfds.
PROBE_URL = "https://storage.googleapis.com/cvdf-datasets/mnist/t10k-labels-idx1-ubyte.gz"
PROBE_SECONDS = 3.0
BATCH = 1024  # records per read: enough to hide the call, small enough to stay in cache


class Arrays(NamedTuple):
    """x_* [n, H, W, C] in the data set's dtype, y_* int64 [n]."""

    x_train: np.ndarray
    y_train: np.ndarray
    x_test: np.ndarray
    y_test: np.ndarray
    num_classes: int


def network_answers(seconds: float = PROBE_SECONDS) -> bool:
    """Whether the data host answers a HEAD request within `seconds`."""
    answered = threading.Event()

    def probe() -> None:
        request = urllib.request.Request(PROBE_URL, method="HEAD")
        # Whatever goes wrong, down to a malformed proxy setting, is no answer.
        with (
            contextlib.suppress(Exception),
            urllib.request.urlopen(request, timeout=seconds),
        ):
            answered.set()

    # A thread, since a name server that does not answer heeds no timeout.
    thread = threading.Thread(target=probe, daemon=True)
    thread.start()
    thread.join(seconds)
    return answered.is_set()


def load_tfds(name: str, dir: str) -> Arrays:
    """The `train` and `test` splits of a data set with `image` and `label` features.

    A prepared copy serves if there is one; otherwise it is downloaded and prepared in `dir`.

    Args:
        name: as tfds spells it: `mnist`, `emnist/letters`, `cifar10:3.0.2`.
        dir: tfds's `data_dir`; empty for its default.
    """
    dir = os.path.expanduser(dir)
    builder = _prepared(name, dir) or _prepare(name, dir)
    features, splits = builder.info.features, builder.info.splits
    if not {"image", "label"} <= set(features or {}) or not hasattr(
        features["label"], "num_classes"
    ):
        raise UserError(
            f"tfds data set {name!r} has the features {', '.join(features or {})}: "
            "choose another data set, with 'image' and a class 'label'"
        )
    if not {"train", "test"} <= set(splits):
        raise UserError(
            f"tfds data set {name!r} has the splits {', '.join(splits)}: "
            "choose another data set with 'train' and 'test', or use source 'npz'"
        )
    if None in features["image"].shape:
        raise UserError(
            f"tfds data set {name!r} has images of shape {features['image'].shape}: one fixed size "
            "is needed; choose another data set, or resize it yourself and use source 'npz'"
        )
    train, test = (_read(builder, split, name) for split in ("train", "test"))
    return Arrays(*train, *test, features["label"].num_classes)


def _prepared(name: str, dir: str) -> Any:
    """The builder of the newest prepared copy, or None. Needs no code of the data set."""
    from tensorflow_datasets.core import read_only_builder, registered

    try:
        return read_only_builder.builder_from_files(name, data_dir=dir or None)
    except registered.DatasetNotFoundError:
        return None
    except Exception as error:  # a malformed name, two copies, a damaged json file: any type
        raise UserError(
            f"tfds data set {name!r} cannot be opened in {_place(dir)} ({one_line(error)}): "
            "correct the name or the directory"
        ) from error


def _prepare(name: str, dir: str) -> Any:
    """Downloads and prepares, if the network answers."""
    import tensorflow_datasets as tfds

    if re.split("[:/]", name)[0] not in tfds.list_builders(with_community_datasets=False):
        raise UserError(
            f"tfds data set is {name!r}, and {_place(dir)} has no prepared copy of it: use a name "
            "of the tfds catalogue, such as mnist or cifar10, or the directory of your copy"
        )
    # tfds itself would retry for minutes before giving up.
    if not network_answers():
        raise UserError(
            f"tfds data set {name!r} is not prepared in {_place(dir)} and the network does not "
            "answer: go online, give the directory of a prepared copy, or use source 'npz'"
            + (" or 'bundled'" if name == "mnist" else "")
        )
    try:
        builder = tfds.builder(name, data_dir=dir or None)
        with tensorflow_stand_in(builder):
            builder.download_and_prepare(file_format="array_record")
    except Exception as error:  # the download, the disk or the data set's own code: any type
        raise UserError(
            f"tfds could not prepare {name!r} in {_place(dir)} ({one_line(error)}): try again, "
            "prepare it elsewhere with file_format='array_record', or use source 'npz'"
        ) from error
    return builder


def _read(builder: Any, split: str, name: str) -> tuple[np.ndarray, np.ndarray]:
    """One split as images [n, H, W, C] and labels int64 [n]."""
    image = builder.info.features["image"]
    try:
        records = builder.as_data_source(split)
        x = np.empty((len(records), *image.shape), image.np_dtype)
        y = np.empty(len(records), np.int64)
        for start in range(0, len(records), BATCH):
            stop = min(start + BATCH, len(records))
            batch = records.__getitems__(list(range(start, stop)))
            x[start:stop] = [record["image"] for record in batch]
            y[start:stop] = [record["label"] for record in batch]
    except NotImplementedError as error:
        formats = ", ".join(f.value for f in builder.info.available_file_formats())
        raise UserError(
            f"tfds data set {name!r} in {builder.data_dir} is stored as {formats}, not as "
            "array_record: prepare it with file_format='array_record', or give another directory"
        ) from error
    except Exception as error:  # a damaged file shows as whatever the C++ reader raises
        raise UserError(
            f"tfds data set {name!r} in {builder.data_dir} cannot be read ({one_line(error)}): "
            "delete that directory and run again"
        ) from error
    return x, y


def _place(dir: str) -> str:
    return dir or "tfds's default directory"
