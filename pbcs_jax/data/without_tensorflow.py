"""Lets tensorflow-datasets prepare image data sets on a machine without TensorFlow.

tensorflow-datasets reads prepared data without TensorFlow, but its preparation still calls a few
TensorFlow functions, to open files and to compress pictures. The stand-in here offers those that
MNIST, its relatives and CIFAR need, for as long as the preparation lasts.
"""

import contextlib
import importlib.util
import io
import os
import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np


@contextlib.contextmanager
def tensorflow_stand_in(builder: Any) -> Iterator[None]:
    """While it lasts, `builder.download_and_prepare` needs no TensorFlow; a no-op if there is one.

    Args:
        builder: a `tfds.core.DatasetBuilder`, whose module often calls TensorFlow as well.
    """
    if importlib.util.find_spec("tensorflow"):
        yield
        return
    from tensorflow_datasets.core.download import extractor
    from tensorflow_datasets.core.features import image_feature
    from tensorflow_datasets.core.utils import tf_utils

    with contextlib.ExitStack() as stack:
        for module in (extractor, image_feature, tf_utils, sys.modules[type(builder).__module__]):
            if hasattr(module, "tf"):
                stack.enter_context(mock.patch.object(module, "tf", _STAND_IN))
        yield


def _encode_png(pixels: np.ndarray) -> SimpleNamespace:
    """What TensorFlow's function returns for [H, W, C] uint8: something with a `numpy()`."""
    from PIL import Image

    buffer = io.BytesIO()
    Image.fromarray(pixels[..., 0] if pixels.shape[-1] == 1 else pixels).save(buffer, "png")
    return SimpleNamespace(numpy=buffer.getvalue)


_STAND_IN = SimpleNamespace(
    compat=SimpleNamespace(as_text=os.fsdecode),
    executing_eagerly=lambda: True,
    image=SimpleNamespace(encode_png=_encode_png),
    io=SimpleNamespace(gfile=SimpleNamespace(GFile=open)),
)
