"""Data of any kind are understood, or refused in one line of the library's own."""

import decimal
import fractions

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pandas as pd
import pytest
import scipy.sparse
from flax import linen as nn

import pbcs_jax as pbcs
from pbcs_jax import border, nets
from pbcs_jax.baselines import BASELINES, Candidates
from pbcs_jax.baselines.inputs import INPUT_BASELINES, InputCandidates

N, D = 60, 4
RNG = np.random.default_rng(0)
X = RNG.integers(-50, 50, (N, D)).astype(np.float32)  # whole: every type can hold them
Y = np.arange(N) % 3
TEXT = np.array(["ant", "bee", "cat"])
QUICK = {"objective": "kernel", "outer_steps": 3, "num_masks": 4, "ridge": 0.1, "progress": False}


def torch_of(array, **options):
    torch = pytest.importorskip("torch")
    tensor = torch.tensor(array)
    return tensor.to(**{k: getattr(torch, v) for k, v in options.items()}) if options else tensor


def shared_memory(array, tmp_path):
    np.save(tmp_path / "array.npy", array)
    return np.load(tmp_path / "array.npy", mmap_mode="r")


# What the user calls the classes 0, 1, 2: three labels, in this order, and how they are given.
LABELS = {
    "int64": lambda y: y.astype(np.int64),
    "int32": lambda y: y.astype(np.int32),
    "int8": lambda y: y.astype(np.int8),
    "uint8": lambda y: y.astype(np.uint8),
    "uint64": lambda y: y.astype(np.uint64),
    "big-endian": lambda y: y.astype(">i4"),
    "float64": lambda y: y.astype(np.float64),
    "float32": lambda y: y.astype(np.float32),
    "float16": lambda y: y.astype(np.float16),
    "signs": lambda y: y - 1,
    "signs in floats": lambda y: y - 1.0,
    "offset": lambda y: y + 1,
    "negative": lambda y: y - 10,
    "large gaps": lambda y: y + 100_000,
    "beyond int32": lambda y: y * 10**12,
    "powers": lambda y: 10**y,
    "text": lambda y: TEXT[y],
    "text as objects": lambda y: TEXT[y].astype(object),
    "bytes": lambda y: TEXT[y].astype("S"),
    "text of numbers": lambda y: (y + 7).astype(str),
    "text of other letters": lambda y: np.array(["ßen", "äpfel", "日本"])[y],
    "list of int": lambda y: y.tolist(),
    "list of str": lambda y: TEXT[y].tolist(),
    "tuple": lambda y: tuple(y.tolist()),
    "range": lambda y: list(y),
    "objects that are int": lambda y: y.astype(object),
    "objects that are float": lambda y: y.astype(float).astype(object),
    "column": lambda y: y[:, None],
    "column of text": lambda y: TEXT[y][:, None],
    "column of floats": lambda y: y[:, None].astype(float),
    "list of lists": lambda y: [[value] for value in y],
    "one-hot": lambda y: np.eye(3)[y],
    "one-hot of int": lambda y: np.eye(3, dtype=int)[y],
    "one-hot of bool": lambda y: np.eye(3, dtype=bool)[y],
    "one-hot DataFrame": lambda y: pd.get_dummies(pd.Series(TEXT[y])),
    "one-hot sparse": lambda y: scipy.sparse.csr_matrix(np.eye(3)[y]),
    "Series": lambda y: pd.Series(y),
    "Series with another index": lambda y: pd.Series(y, index=np.arange(N)[::-1]),
    "Series of text": lambda y: pd.Series(TEXT[y]),
    "Series of string dtype": lambda y: pd.Series(TEXT[y], dtype="string"),
    "Series of Int64": lambda y: pd.Series(y, dtype="Int64"),
    "categorical": lambda y: pd.Series(pd.Categorical(TEXT[y])),
    "categorical with one unused": lambda y: pd.Categorical(TEXT[y], [*TEXT, "dog"]),
    "categorical of int": lambda y: pd.Series(pd.Categorical(y + 5)),
    "Index": lambda y: pd.Index(y),
    "DataFrame of one column": lambda y: pd.DataFrame({"label": y}),
    "JAX": lambda y: jnp.asarray(y),
    "JAX uint8": lambda y: jnp.asarray(y, jnp.uint8),
    "JAX bfloat16": lambda y: jnp.asarray(y, jnp.bfloat16),
    "torch": lambda y: torch_of(y),
    "torch float": lambda y: torch_of(y, dtype="float32"),
    "reversed view": lambda y: y[::-1][::-1],
    "strided view": lambda y: np.repeat(y, 2)[::2],
    "Fortran column": lambda y: np.asfortranarray(y[:, None]),
    "masked array without masks": lambda y: np.ma.array(y),
}
TWO = {
    "bool": lambda y: y == 1,
    "0 and 1": lambda y: y,
    "-1 and +1": lambda y: 2 * y - 1,
    "-1.0 and +1.0": lambda y: 2.0 * y - 1,
    "1 and 2": lambda y: y + 1,
    "no and yes": lambda y: np.array(["no", "yes"])[y],
    "Series of bool": lambda y: pd.Series(y == 1),
    "Series of boolean": lambda y: pd.Series(y == 1, dtype="boolean"),
    "list of bool": lambda y: [bool(value) for value in y],
    "torch bool": lambda y: torch_of(y == 1),
    "JAX bool": lambda y: jnp.asarray(y == 1),
    "column of bool": lambda y: (y == 1)[:, None],
    "one-hot of two": lambda y: np.eye(2)[y],
}


@pytest.mark.parametrize("kind", LABELS)
def test_labels_of_any_kind_have_the_same_codes(kind):
    given = LABELS[kind](Y)
    data = border.check_data(X, given)
    np.testing.assert_array_equal(data.y, Y)
    assert data.y.dtype == np.int32
    # And back: each class is called what the user called it.
    names = data.encoding.decode(data.y)
    assert len(set(names.tolist())) == 3 and names.shape == (N,)
    if "one-hot" not in kind:
        flat = np.asarray(given.toarray() if scipy.sparse.issparse(given) else given).ravel()
        if flat.dtype.kind != "S":
            assert [str(a) for a in names[:6]] == [
                str(int(a))
                if isinstance(a, float | np.floating | jnp.bfloat16.dtype.type)
                else str(a)
                for a in flat[:6]
            ]


@pytest.mark.parametrize("kind", TWO)
def test_two_classes_of_any_kind_have_the_same_codes(kind):
    y = np.arange(N) % 2
    np.testing.assert_array_equal(border.check_data(X, TWO[kind](y)).y, y)


INPUTS = {
    "float32": lambda x, _: x,
    "float64": lambda x, _: x.astype(np.float64),
    "float16": lambda x, _: x.astype(np.float16),
    "longdouble": lambda x, _: x.astype(np.longdouble),
    "int64": lambda x, _: x.astype(np.int64),
    "int16": lambda x, _: x.astype(np.int16),
    "int8": lambda x, _: x.astype(np.int8),
    "big-endian float": lambda x, _: x.astype(">f8"),
    "big-endian int": lambda x, _: x.astype(">i2"),
    "Fortran order": lambda x, _: np.asfortranarray(x),
    "memmap": shared_memory,
    "memmap of float64": lambda x, path: shared_memory(x.astype(np.float64), path),
    "read-only": lambda x, _: np.broadcast_to(x, x.shape),
    "strided view": lambda x, _: np.repeat(x, 2, axis=1)[:, ::2],
    "transposed view": lambda x, _: np.ascontiguousarray(x.T).T,
    "list of lists": lambda x, _: x.tolist(),
    "list of arrays": lambda x, _: list(x),
    "tuple of tuples": lambda x, _: tuple(map(tuple, x.tolist())),
    "objects": lambda x, _: x.astype(object),
    "decimals": lambda x, _: [[decimal.Decimal(int(v)) for v in row] for row in x],
    "fractions": lambda x, _: [[fractions.Fraction(int(v)) for v in row] for row in x],
    "matrix": lambda x, _: np.asmatrix(x),
    "masked array without masks": lambda x, _: np.ma.array(x),
    "JAX": lambda x, _: jnp.asarray(x),
    "JAX bfloat16": lambda x, _: jnp.asarray(x, jnp.bfloat16),
    "JAX int8": lambda x, _: jnp.asarray(x, jnp.int8),
    "torch": lambda x, _: torch_of(x),
    "torch float64": lambda x, _: torch_of(x, dtype="float64"),
    "torch bfloat16": lambda x, _: torch_of(x, dtype="bfloat16"),
    "torch with gradient": lambda x, _: torch_of(x).requires_grad_(),
    "DataFrame": lambda x, _: pd.DataFrame(x, columns=list("abcd")),
    "DataFrame of int": lambda x, _: pd.DataFrame(x.astype(int)),
    "DataFrame of Int64": lambda x, _: pd.DataFrame(x.astype(int)).astype("Int64"),
    "DataFrame of mixed types": lambda x, _: pd.DataFrame(x).astype({0: int, 1: "float64"}),
    "DataFrame with another index": lambda x, _: pd.DataFrame(x, index=np.arange(N)[::-1]),
    "csr": lambda x, _: scipy.sparse.csr_matrix(x),
    "csc": lambda x, _: scipy.sparse.csc_matrix(x),
    "coo array": lambda x, _: scipy.sparse.coo_array(x),
}


@pytest.mark.parametrize("kind", INPUTS)
def test_inputs_of_any_kind_are_the_same_numbers(kind, tmp_path):
    data = border.check_data(INPUTS[kind](X, tmp_path), Y)
    expected = (X - X.mean(0, dtype=np.float64)) / X.std(0, dtype=np.float64)
    np.testing.assert_allclose(data.x, expected, atol=1e-5)
    assert data.x.dtype == np.float32 and data.x.shape == (N, D)
    np.testing.assert_array_equal(data.x, border.check_data(X, Y).x)
    assert data.names == (list("abcd") if kind == "DataFrame" else data.names)


def test_bool_inputs_and_pictures():
    flags = X > 0
    np.testing.assert_array_equal(
        border.check_data(flags, Y).x, border.check_data(flags.astype(float), Y).x
    )
    pictures = RNG.integers(0, 256, (N, 6, 5, 3), dtype=np.uint8)
    scaled = border.check_data(pictures, Y)
    np.testing.assert_allclose(scaled.x.mean((0, 1, 2)), 0, atol=1e-5)
    np.testing.assert_allclose(scaled.x.std((0, 1, 2)), 1, atol=1e-4)
    floats = RNG.normal(3, 2, (N, 6, 5, 3)).astype(np.float32)
    np.testing.assert_array_equal(border.check_data(floats, Y).x, floats)  # as they are
    np.testing.assert_array_equal(border.check_data(pictures, Y, scale=False).x, pictures)


def test_tables_are_standardised_unless_asked_not_to_be():
    x = X * [1, 1000, 1e-3, 0] + [0, 5, 0, 7]  # one column is constant
    data = border.check_data(x, Y, (x[:10] + 1, Y[:10]))
    np.testing.assert_allclose(data.x.mean(0), 0, atol=1e-4)
    np.testing.assert_allclose(data.x.std(0), [1, 1, 1, 0], atol=1e-4)
    shift = data.validation[0] - data.x[:10]  # by the candidates' own statistics
    np.testing.assert_allclose(
        shift, np.broadcast_to([1, 1, 1, 1] / np.r_[x.std(0)[:3], 1], shift.shape), rtol=1e-3
    )
    np.testing.assert_array_equal(border.check_data(x, Y, scale=False).x, x.astype(np.float32))


@pytest.mark.parametrize("kind", ["signs", "text", "large gaps", "float64", "column", "one-hot",
                                  "offset", "categorical", "torch", "JAX uint8"])  # fmt: skip
def test_the_same_samples_are_selected_whatever_labels_are_called(kind):
    expected = pbcs.select_coreset(0, X, Y, None, 9, **QUICK)
    given = LABELS[kind](Y)
    found = pbcs.select_coreset(0, X, given, None, 9, **QUICK)
    np.testing.assert_array_equal(found.indices, expected.indices)
    np.testing.assert_array_equal(found.probabilities, expected.probabilities)


@pytest.mark.parametrize("kind", ["bool", "-1 and +1", "-1.0 and +1.0", "no and yes"])
def test_by_networks_too(kind):
    y = np.arange(N) % 2
    options = {"outer_steps": 2, "num_masks": 2, "inner": pbcs.Inner(steps=5), "progress": False}
    model = nets.MLP(num_classes=2, hidden=(8,))
    options["objective"] = "network"
    expected = pbcs.select_coreset(0, X, y, model, 6, (X, y), **options)
    given = TWO[kind](y)
    found = pbcs.select_coreset(0, X, given, model, 6, (X, given), **options)
    np.testing.assert_array_equal(found.probabilities, expected.probabilities)
    chosen = pbcs.select_features(0, X, given, model, 2, **options)
    assert chosen.indices.shape == (2,)


@pytest.mark.parametrize("kind", ["memmap", "DataFrame", "csr", "torch", "float64", "JAX", "int16"])
def test_the_same_samples_and_inputs_are_selected_from_any_container(kind, tmp_path):
    given = INPUTS[kind](X, tmp_path)
    expected = pbcs.select_coreset(0, X, Y, None, 9, **QUICK)
    found = pbcs.select_coreset(0, given, Y, None, 9, (given, Y), **QUICK)
    assert found.indices.shape == expected.indices.shape
    found = pbcs.select_coreset(0, given, Y, None, 9, **QUICK)
    np.testing.assert_array_equal(found.indices, expected.indices)
    expected = pbcs.select_features(0, X, Y, None, 2, **QUICK)
    found = pbcs.select_features(0, given, Y, None, 2, **QUICK)
    np.testing.assert_array_equal(found.indices, expected.indices)
    assert found.names == (list("abcd") if kind == "DataFrame" else found.names)


@pytest.mark.parametrize("kind", ["text", "signs", "one-hot", "categorical"])
def test_baselines_pass_the_same_border(kind):
    frame = pd.DataFrame(X)
    model = nets.MLP(num_classes=3, hidden=(8,))
    for name in ("uniform", "kcenter", "herding"):
        expected = BASELINES[name](jax.random.key(0), Candidates(X, Y, 3, model), 6)
        found = BASELINES[name](0, Candidates(frame, LABELS[kind](Y), model=model), 6)
        np.testing.assert_array_equal(found, expected)
    expected = INPUT_BASELINES["f_score"](jax.random.key(0), InputCandidates(X, Y), 2)
    found = INPUT_BASELINES["f_score"](0, InputCandidates(frame, LABELS[kind](Y)), 2)
    np.testing.assert_array_equal(found, expected)


KEYS = {
    "key": lambda: jax.random.key(3),
    "old-style key": lambda: jax.random.PRNGKey(3),
    "seed": lambda: 3,
    "NumPy's seed": lambda: np.int64(3),
    "JAX's seed": lambda: jnp.asarray(3),
}


@pytest.mark.parametrize("kind", KEYS)
def test_keys_of_any_kind(kind):
    data = jax.random.key_data(border.check_key(KEYS[kind]()))
    np.testing.assert_array_equal(data, jax.random.key_data(jax.random.key(3)))


def bad(value, row=3, column=1):
    x = X.copy()
    x[row, column] = value
    return x


class Deaf(nn.Module):
    """Its outputs do not depend on how many rows there are."""

    @nn.compact
    def __call__(self, x):
        return nn.Dense(3)(x).mean(0)


def state_of(n, size, **options):
    return pbcs.init(jax.random.key(0), n, size, pbcs.Settings(**options))


NETWORK = {"objective": "network", "model": nets.MLP(num_classes=3, hidden=(8,)), "outer_steps": 1}
MISUSE = {
    # Keys.
    "no key": ({"key": None}, "key is None: give jax.random.key"),
    "a float as key": ({"key": 0.5}, "key is 0.5"),
    "a negative seed": ({"key": -1}, "key is -1"),
    "a generator as key": ({"key": np.random.default_rng(0)}, "key is .*: give jax.random.key"),
    "many keys": ({"key": jax.random.split(jax.random.key(0), 3)}, r"key has shape \(3,\)"),
    "True as key": ({"key": True}, "key is True"),
    # Inputs.
    "no inputs": ({"x": None}, "x is None: give an array"),
    "a key in place of x": ({"x": jax.random.key(0)}, "order of arguments"),
    "a dict": ({"x": {"a": [1]}}, "x is {'a': .*: give an array"),
    "text in place of x": (
        {"x": "data.csv"},
        "x is 'data.csv': give an array",
    ),
    "a generator": ({"x": (row for row in X)}, "x is .*: give an array"),
    "one axis": ({"x": X[:, 0]}, r"x is of shape \(60,\): give one row per sample"),
    "a number": ({"x": 3.0}, "x is a single number"),
    "no rows": ({"x": X[:0], "y": Y[:0]}, r"x has shape \(0, 4\)"),
    "no columns": ({"x": X[:, :0]}, r"x has shape \(60, 0\)"),
    "ragged": ({"x": [[1.0, 2.0], [3.0]], "y": [0, 1]}, "2 numbers in row 0 and 1 in row 1"),
    "NaN": ({"x": bad(np.nan)}, "x is nan at row 3, column 1: remove"),
    "inf": ({"x": bad(np.inf)}, "x is inf at row 3, column 1"),
    "beyond float32": ({"x": bad(0).astype(np.float64) * 1e300}, "beyond float32"),
    "NaN of a frame": (
        {"x": pd.DataFrame(bad(np.nan), columns=list("abcd"))},
        r"row 3, column 1 \('b'\)",
    ),
    "missing Int64": (
        {"x": pd.DataFrame({"a": pd.array([1, None] * 30, "Int64")})},
        r"x is nan at row 1, column 0 \('a'\)",
    ),
    "masked values": ({"x": np.ma.masked_less(X, 0)}, "x is nan at row"),
    "NaN of a picture": (
        {"x": np.where(np.arange(N * 9).reshape(N, 3, 3, 1) == 40, np.nan, 1.0)},
        r"x is nan at row 4, place \(1, 1, 0\)",
    ),
    "a column of text": (
        {"x": pd.DataFrame(X, columns=list("abcd")).assign(e="red")},
        "column 'e' of type .*: encode it as numbers",
    ),
    "a column of dates": (
        {"x": pd.DataFrame(X).assign(t=pd.Timestamp("2020-01-01"))},
        "column 't' of type datetime",
    ),
    "text": ({"x": np.full((N, 2), "a")}, "x holds text, 'a' at row 0, column 0"),
    "text among objects": ({"x": [[1, "a"]] * N}, "x holds text, .* at row 0, column"),
    "complex": ({"x": X + 1j}, "x has type complex"),
    "dates": ({"x": np.full((N, 2), np.datetime64("2020-01-01"))}, "x has type datetime64"),
    "a structured array": ({"x": np.zeros((N, 2), [("a", float)])}, "x has type"),
    "objects": ({"x": np.full((N, 2), object())}, "x has type object: give real numbers"),
    "too large for memory": (
        {"x": scipy.sparse.csr_matrix((N, 10**12))},
        "a sparse matrix that takes .* GB",
    ),
    # Targets.
    "no targets": ({"y": None}, "y is None: give an array"),
    "fewer labels": ({"y": Y[:-1]}, "x has 60 rows and y 59"),
    "one class": ({"y": np.zeros(N, int)}, "y has 1 class, 0: give at least two"),
    "NaN label": ({"y": np.where(np.arange(N) == 5, np.nan, Y)}, "y is nan at row 5"),
    "missing label": ({"y": [*TEXT[Y][:-1].tolist(), None]}, "y is None at row 59"),
    "NA label": ({"y": pd.Series([*Y[:-1], None], dtype="Int64")}, "y is nan at row 59"),
    "text and numbers": ({"y": [*Y[:-1].tolist(), "a"]}, "y mixes text and numbers"),
    "rows of labels": (
        {"y": np.ones((N, 3), int)},
        r"y has shape \(60, 3\) and its rows are not one",
    ),
    "fractions as classes": (
        NETWORK | {"y": Y / 2 + 0.25, "loss_fn": "cross_entropy"},
        "y has the label 0.25, which is not whole",
    ),
    "whole numbers of a regression": (
        {"y": np.round(X[:, 0] * 1e6)},
        "classes for 60 samples: give loss_fn='squared_error'",
    ),
    "text for a regression": ({"y": TEXT[Y], "loss_fn": "squared_error"}, "y holds text, 'ant'"),
    "dates as labels": ({"y": np.full(N, np.datetime64("2020-01-01"))}, "y has type datetime64"),
    "complex labels": ({"y": Y + 1j}, "y has type complex"),
    # Validation.
    "validation without labels": ({"validation": X}, "validation is a ndarray: give a pair"),
    "validation of three": ({"validation": (X, Y, Y)}, "validation is .*: give a pair"),
    "other columns": (
        {"validation": (X[:, :3], Y)},
        r"shape \(4,\) in x and \(3,\) in validation x",
    ),
    "columns in another order": (
        {
            "x": pd.DataFrame(X, columns=list("abcd")),
            "validation": (pd.DataFrame(X, columns=list("abdc")), Y),
        },
        "column 2 is 'c' in x and 'd' in validation x",
    ),
    "text in one only": ({"validation": (X, TEXT[Y])}, "text in one of y and validation y only"),
    "validation with NaN": ({"validation": (bad(np.nan), Y)}, "validation x is nan at row 3"),
    "validation labels missing": ({"validation": (X, Y[:5])}, "validation x has 60 rows and"),
    # Sizes and options.
    "K of a half": ({"size": 2.5}, "size is 2.5: use a whole number"),
    "K of 0": ({"size": 0}, "size is 0"),
    "K beyond n": ({"size": 61}, "size is 61: use a whole number of at least 1 and of at most 60"),
    "K as text": ({"size": "10"}, "size is '10'"),
    "K of NaN": ({"size": np.nan}, "size is nan"),
    "learning rate inf": ({"learning_rate": np.inf}, "learning_rate is inf"),
    "learning rate 0": ({"learning_rate": 0}, "learning_rate is 0"),
    "learning rate text": ({"learning_rate": "fast"}, "learning_rate is 'fast'"),
    "clip_norm NaN": ({"clip_norm": np.nan}, "clip_norm is nan"),
    "negative clip_norm": ({"clip_norm": -1.0}, "clip_norm is -1.0"),
    "callback_every 0": ({"callback_every": 0}, "callback_every is 0"),
    "callback no function": ({"callback": 3}, "callback is 3: give a function"),
    "negative chunks": ({"mask_chunk": -1}, "mask_chunk is -1"),
    "negative outer chunks": ({"outer_chunk": -5}, "outer_chunk is -5"),
    "compute as dict": ({"compute": {"mask_chunk": 1}}, r"compute is .*: give a Compute"),
    "mesh of another axis": (
        {"mesh": jax.make_mesh((1,), ("data",), axis_types=(jax.sharding.AxisType.Auto,))},
        "mesh is .*: give one with the axis 'masks'",
    ),
    "unknown final": ({"final": "best"}, "final is 'best': use one of top_k, sample"),
    "unknown estimator": ({"estimator": "magic"}, "estimator is 'magic'"),
    "unknown optimizer": ({"optimizer": "lion"}, "optimizer is 'lion'"),
    "an optimizer of another library": ({"optimizer": object()}, "optimizer is .*: use one of"),
    "unknown schedule": ({"schedule": "step"}, "schedule is 'step'"),
    "unknown size_schedule": ({"size_schedule": "linear"}, "size_schedule is 'linear'"),
    "unknown objective": ({"objective": "tree"}, "objective is 'tree'"),
    "objective as class": ({"objective": pbcs.Kernel}, "objective is .*: use one of"),
    "unknown option": ({"learning_rat": 1}, "option is 'learning_rat'"),
    "an option of another objective": ({"path_steps": 1}, "option is 'path_steps'"),
    "no masks": ({"num_masks": 0}, "num_masks is 0"),
    "half a mask": ({"num_masks": 2.5}, "num_masks is 2.5: use a whole number"),
    "negative steps": ({"outer_steps": -1}, "outer_steps is -1"),
    "steps as text": ({"outer_steps": "many"}, "outer_steps is 'many'"),
    "negative ridge": ({"ridge": -1.0}, "kernel.ridge is -1.0"),
    "max_ratio below 1": ({"max_ratio": 0.5}, "max_ratio is 0.5"),
    "max_ratio NaN": ({"max_ratio": np.nan}, "max_ratio is nan"),
    "max_ratio of numbers": ({"y": X[:, 0] / 7, "max_ratio": 2.0}, "max_ratio is 2.0: it is for"),
    "smooth of samples": ({"smooth": 1.0}, "smooth is 1.0: it is for inputs"),
    "scale as text": ({"scale": "no"}, "scale is 'no'"),
    "progress as text": ({"progress": "no"}, "progress is 'no'"),
    "unknown loss": (NETWORK | {"loss_fn": "hinge"}, "loss is 'hinge'"),
    "unknown outer loss": (NETWORK | {"outer_loss": "hinge"}, "loss is 'hinge'"),
    "another training loss of the kernel": ({"loss_fn": "hinge"}, "loss_fn is 'hinge'"),
    "outer loss of wrong shape": (
        NETWORK | {"outer_loss": lambda outputs, y: outputs},
        r"outer_loss has values of shape \(2, 3\)",
    ),
    "training loss of wrong shape": (
        NETWORK | {"loss_fn": lambda outputs, y: jnp.sum(outputs)},
        r"loss_fn has values of shape \(\)",
    ),
    "an outer loss that raises": (
        NETWORK | {"outer_loss": lambda outputs, y: outputs["logits"]},
        "outer_loss raises .* for outputs of shape",
    ),
    "path gradients of the error rate": (
        NETWORK | {"outer_loss": "error_rate", "estimator": "path"},
        "outer_loss is 'error_rate', which has no gradient",
    ),
    # Starts.
    "start of another n": ({"start": np.full(50, 0.2)}, r"start has shape \(50,\)"),
    "start with NaN": ({"start": np.full(N, np.nan)}, "start is nan at 0"),
    "start beyond 1": ({"start": np.full(N, 3.0)}, "start is 3.0 at 0"),
    "start as text": ({"start": "again"}, "start has shape"),
    "state of another n": ({"start": state_of(50, 6)}, "start is a state of 6 of 50"),
    "state of another K": ({"start": state_of(N, 7)}, "start is a state of 7 of 60"),
    "state of another optimizer": (
        {"start": state_of(N, 6, optimizer="sgd")},
        "start is a state of another optimizer",
    ),
    # Models.
    "no model": (NETWORK | {"model": None}, "model is None"),
    "a model's name": (NETWORK | {"model": "resnet"}, "model is .*resnet"),
    "a class of models": (NETWORK | {"model": nets.MLP}, "model is"),
    "too few outputs": (
        NETWORK | {"model": nets.MLP(num_classes=2, hidden=(8,))},
        "labels have 3 classes, the model 2 outputs",
    ),
    "one output": (
        NETWORK | {"model": nets.MLP(num_classes=1, hidden=(8,))},
        "labels have 3 classes, the model 1 outputs",
    ),
    "a model of pictures": (NETWORK | {"model": nets.ConvNet(num_classes=3)}, "model raises"),
    "outputs without rows": (NETWORK | {"model": Deaf()}, r"model gives outputs of shape \(3,\)"),
    "a learning rate of Inner": (
        NETWORK | {"inner": {"steps": 3}},
        r"inner is \{'steps': 3\}: give an Inner",
    ),
}


@pytest.mark.parametrize("case", MISUSE)
def test_misuse_is_refused_in_one_line(case):
    change, said = MISUSE[case]
    given = {"key": 0, "x": X, "y": Y, "model": None, "size": 6} | QUICK | change
    if given["objective"] == "network":
        given.pop("ridge")
    with pytest.raises(pbcs.UserError, match=said) as caught:
        pbcs.select_coreset(**given)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"groups": [0, 0, 1]}, "groups have shape"),
        ({"groups": [0, 0, 2, 2]}, "without gaps"),
        ({"groups": [0.0, 1, 2, 3]}, "groups are of type"),
        ({"max_ratio": 2.0}, "max_ratio is 2.0: it is for samples"),
        ({"smooth": 1.0}, "smooth is 1.0 and a sample has shape"),
        ({"size": 5}, "size is 5"),
        ({"y": None}, "y is None"),
        ({"x": bad(np.nan)}, "x is nan at row 3, column 1"),
        ({"objective": "kernel_then_network"}, "objective is"),
        ({"samples": 1}, "kernel.samples is 1"),
    ],
)
def test_misuse_of_inputs_is_refused_in_one_line(change, said):
    given = {"key": 0, "x": X, "y": Y, "model": None, "size": 2} | QUICK | change
    with pytest.raises(pbcs.UserError, match=said) as caught:
        pbcs.select_features(**given)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Candidates(X, Y[:5]), "x has 60 rows and y 5"),
        (lambda: Candidates(X, Y, num_classes=2), "label 2, which is none of the 2 classes"),
        (lambda: BASELINES["kcenter"](0, Candidates(X, Y, 3), 6), "model is None|None"),
        (lambda: BASELINES["uniform"](None, Candidates(X, Y, 3), 6), "key is None"),
        (lambda: BASELINES["uniform"](0, Candidates(X, Y, 3), 61), "size is 61"),
        (lambda: INPUT_BASELINES["mrmr"](0, InputCandidates(X, Y), 5), "size is 5"),
        (lambda: InputCandidates(X, X[:, 0] + 0.5), "which is not whole"),
        (lambda: pbcs.Settings(outer_steps=np.inf), "outer_steps is inf"),
        (lambda: pbcs.Inner(learning_rate=np.nan), "learning_rate is nan"),
        (lambda: pbcs.Inner(steps=1.5), "inner.steps is 1.5"),
        (lambda: pbcs.Inner(optimizer=optax.adam), "optimizer is"),
        (lambda: pbcs.Compute(callback_every=2.5), "callback_every is 2.5"),
        (lambda: pbcs.Result.load("nowhere.npz"), "nowhere.npz' does not exist"),
    ],
)
def test_misuse_of_the_other_entrances(make, said):
    with pytest.raises(pbcs.UserError, match=said) as caught:
        make()
    assert "\n" not in str(caught.value)


def test_there_are_enough_kinds():
    """What the documentation claims."""
    assert len(LABELS) + len(TWO) + len(INPUTS) >= 80 and len(MISUSE) >= 60
