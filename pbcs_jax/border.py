"""The border: data of any kind become checked arrays of one kind, or end in one clear error.

Behind it there are float32 inputs, all finite, and either int32 classes 0..C-1 or float32 targets
of a regression. `Encoding` remembers what the user called them.
"""

import math
import operator
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pbcs_jax import memory
from pbcs_jax.errors import UserError, check_number

KINDS = ("auto", "classes", "numbers", "as_given")
"""What targets may be, see `Encoding.of`."""

_ALIGNED = 64  # bytes
_ROWS = 1 << 14  # looked at together: a file that is mapped into memory is not copied whole
# Tables of more numbers than this are gone through in pieces.
_LARGE = 1 << 26
_GIVE = "give an array, a DataFrame, a tensor or a list of rows"


class Encoding(NamedTuple):
    """How targets were turned into numbers, and back.

    Attributes:
      classes: `[C]` the user's own labels, in the order of their codes; None of a regression.
      mean: of the targets of a regression, which are standardised.
      std: of the same.
    """

    classes: np.ndarray | None = None
    mean: Any = 0.0
    std: Any = 1.0

    @classmethod
    def of(cls, targets: Mapping[str, Any], kind: str = "auto") -> "Encoding":
        """The encoding of targets.

        Args:
          targets: by name, of any kind that `read_targets` reads: those of the candidates first,
            then of further data, whose classes count too.
          kind: 'classes'; 'numbers' of a regression, to be standardised; 'as_given', where floats
            are targets of a loss of the user's own and stay as they are; 'auto' tells classes from
            numbers: floats that are not whole are numbers, all else is classes.
        """
        arrays = {what: read_targets(what, y) for what, y in targets.items()}
        what, first = next(iter(arrays.items()))
        if kind == "auto" and first.dtype.kind == "f" and not _are_whole(first):
            kind = "numbers"
        if kind == "as_given" and first.dtype.kind == "f":
            return cls()
        if kind == "numbers":
            numbers = _as_numbers(what, first)
            mean, std = statistics(numbers.reshape(len(numbers), -1))
            return cls(None, mean.reshape(numbers.shape[1:]), std.reshape(numbers.shape[1:]))
        named = [_as_classes(what, array) for what, array in arrays.items()]
        if len({array.dtype.kind == "U" for array in named}) > 1:
            raise UserError(
                f"labels are text in one of {' and '.join(arrays)} only: give both alike"
            )
        classes = np.unique(np.concatenate(named))
        if len(classes) < 2:
            raise UserError(f"{what} has 1 class, {_plain(classes[0])!r}: give at least two")
        # Numbers from 0 without gaps were made to be classes, however many.
        are_codes = classes.dtype.kind == "U" or np.array_equal(classes, np.arange(len(classes)))
        many = len(classes) > max(20, len(named[0]) // 2)
        if many and not are_codes and kind == "auto":
            raise UserError(
                f"{what} has {len(classes)} classes for {len(named[0])} samples: give "
                "loss_fn='squared_error' if they are numbers of a regression, else text, as by "
                "y.astype(str)"
            )
        return cls(classes)

    @classmethod
    def codes(cls, num_classes: int) -> "Encoding":
        """Of labels that are 0..C-1 already, where some may be missing."""
        check_number("num_classes", num_classes, least=1, whole=True)
        return cls(np.arange(num_classes, dtype=np.int32))

    @property
    def num_classes(self) -> int:
        """How many there are; 0 of a regression."""
        return 0 if self.classes is None else len(self.classes)

    def encode(self, what: str, y: Any) -> np.ndarray:
        """int32 `[n]` of classes, or float32 `[n, ...]` of a regression."""
        read = read_targets(what, y)
        if self.classes is None:
            return ((_as_numbers(what, read) - self.mean) / self.std).astype(np.float32)
        labels = _as_classes(what, read)
        codes = np.searchsorted(self.classes, labels)
        wrong = self.classes[np.minimum(codes, self.num_classes - 1)] != labels
        if wrong.any():
            raise UserError(
                f"{what} has the label {_plain(labels[wrong][0])!r}, which is none of the "
                f"{self.num_classes} classes: remove those samples or relabel them"
            )
        return codes.astype(np.int32)

    def decode(self, values: Any) -> np.ndarray:
        """What the user calls these codes, or numbers."""
        if self.classes is None:
            return np.asarray(values) * self.std + self.mean
        return self.classes[np.asarray(values)]


class Data(NamedTuple):
    """What has passed the border.

    Attributes:
      x: float32 `[n, ...]`, finite; of tables and of pictures of integers standardised.
      y: int32 `[n]` classes, or float32 `[n, ...]` targets of a regression, standardised.
      validation: `(x, y)`, held-out data of the same kind, or None.
      encoding: of the targets.
      names: `[d]` of the columns, where they have any.
      given: `[n, ...]` numbers as they were given, for pictures of them.
    """

    x: np.ndarray
    y: np.ndarray
    validation: tuple[np.ndarray, np.ndarray] | None
    encoding: Encoding
    names: list[str] | None
    given: np.ndarray


def check_data(
    x: Any, y: Any, validation: Any = None, target: "str | Encoding" = "auto", scale: bool = True
) -> Data:
    """Reads samples and their targets, or raises.

    Args:
      x: `[n, ...]` numbers: NumPy, JAX, torch, pandas, scipy.sparse or lists.
      y: `[n]` labels of any kind, one-hot rows, or numbers.
      validation: `(x, y)` of the same kind, or None.
      target: the kind of targets, see `Encoding.of`; or their encoding, if it is known.
      scale: whether each column of a table, and each channel of pictures of integers, is moved and
        scaled to mean 0 and standard deviation 1 over the candidates.

    >>> data = check_data([[1.0, 5.0], [3.0, 5.0]], ["no", "yes"])
    >>> data.x.tolist(), data.y.tolist(), data.encoding.decode([1]).tolist()
    ([[-1.0, 0.0], [1.0, 0.0]], [0, 1], ['yes'])
    """
    given, names = read_inputs("x", x)
    pair = None if validation is None else _pair(validation)
    if not isinstance(scale, bool | np.bool_):
        raise UserError(f"scale is {scale!r}: use True or False")
    encoding = target
    if not isinstance(encoding, Encoding):
        encoding = Encoding.of({"y": y} | ({"validation y": pair[1]} if pair else {}), encoding)
    targets = encoding.encode("y", y)
    _check_rows("x", given, "y", targets)
    scaled = scale and (given.ndim == 2 or given.dtype.kind in "ui")
    moments = statistics(given) if scaled else (np.zeros(()), np.ones(()))
    outer = None
    if pair is not None:
        other, other_names = read_inputs("validation x", pair[0])
        _check_alike("x", given.shape[1:], names, "validation x", other.shape[1:], other_names)
        outer = standardise(other, *moments), encoding.encode("validation y", pair[1])
        _check_rows("validation x", other, "validation y", outer[1])
    return Data(standardise(given, *moments), targets, outer, encoding, names, given)


def check_key(key: Any) -> jax.Array:
    """A PRNG key from one, from an old-style one, or from a whole number as seed.

    >>> check_key(3) == jax.random.key(3)
    Array(True, dtype=bool)
    """
    if isinstance(key, jax.Array) and jnp.issubdtype(key.dtype, jax.dtypes.prng_key):
        if key.shape == ():
            return key
        raise UserError(f"key has shape {key.shape}: give a single one, such as keys[0]")
    array = np.asarray(key) if isinstance(key, np.ndarray | jax.Array) else None
    if array is not None and array.dtype == np.uint32 and array.shape == (2,):
        return jax.random.wrap_key_data(jnp.asarray(key))
    try:
        seed = operator.index(key)
    except TypeError:
        seed = -1
    if isinstance(key, bool | np.bool_) or not 0 <= seed < 1 << 63:
        raise UserError(f"key is {_short(key)}: give jax.random.key(0), or a seed of at least 0")
    return jax.random.key(seed)


def read_inputs(what: str, x: Any) -> tuple[np.ndarray, list[str] | None]:
    """Inputs as finite numbers `[n, d]` or `[n, height, width, ...]`, and names of columns, if any.

    Integers stay of their type (they are pixels), all else is float32.

    Args:
      what: name of `x`, for errors.
      x: anything.
    """
    names = None
    if _is_frame(x):
        names = [str(name) for name in x.columns]
        x = _from_frame(what, x)
    array = _as_array(what, x)
    if array.ndim < 2:
        shown = "a single number" if array.ndim == 0 else f"of shape {array.shape}"
        raise UserError(
            f"{what} is {shown}: give one row per sample, [n, d] or [n, height, width, channels]; "
            "a single column is x.reshape(-1, 1)"
        )
    if array.size == 0:
        raise UserError(f"{what} has shape {array.shape}: give at least one row and one column")
    kind = array.dtype.kind
    if kind in "ui":
        return array.astype(array.dtype.newbyteorder("=")), names
    if kind in "US" or (kind == "O" and _first_text(array) is not None):
        _refuse_text(what, array, names)
    if kind not in "bfO" and not jnp.issubdtype(array.dtype, jnp.floating):
        raise UserError(f"{what} has type {array.dtype}: give real numbers")
    try:
        with np.errstate(over="ignore"):  # too large for float32 is inf, and found below
            # A table is only read; what may be shown as pictures must not change with the user's.
            array = array.astype(np.float32, copy=array.ndim != 2)
    except (TypeError, ValueError) as error:
        raise UserError(f"{what} has type {array.dtype}: give real numbers") from error
    _check_finite(what, array, names)
    return array, names


def read_targets(what: str, y: Any) -> np.ndarray:
    """Targets as an array `[n]` of text, or `[n, ...]` numbers; one-hot rows become their columns.

    Args:
      what: name of `y`, for errors.
      y: anything.
    """
    columns = None
    if _is_frame(y):
        columns = np.array([str(name) for name in y.columns])
    if hasattr(y, "to_numpy") and not isinstance(y, jax.Array):
        y = y.to_numpy()
    is_text = {isinstance(v, str) for v in y} if isinstance(y, list | tuple) else set()
    # NumPy would turn numbers beside text into text without a word.
    array = np.array(y, object) if len(is_text) > 1 else _as_array(what, y)
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim == 0 or array.size == 0:
        raise UserError(f"{what} has shape {array.shape}: give one target per sample, [n]")
    if array.dtype.kind == "O":
        array = _from_objects(what, array)
    if jnp.issubdtype(array.dtype, jnp.floating):
        array = array.astype(np.float64)
        bad = np.argwhere(~np.isfinite(array))
        if len(bad):
            raise UserError(
                f"{what} is {array[tuple(bad[0])]} at row {bad[0][0]}: remove that row or label it"
            )
    elif array.dtype.kind == "S":
        array = np.char.decode(array, "utf-8", "replace")
    elif array.dtype.kind not in "buiU":
        raise UserError(f"{what} has type {array.dtype}: give numbers or text as labels")
    if array.ndim == 2 and _is_one_hot(array):
        array = array.argmax(1)
        return array if columns is None else columns[array]
    return array


def statistics(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation per column `[d]`, or per channel of pictures `[C]`."""
    axes = tuple(range(x.ndim - 1)) if x.ndim != 3 else None
    mean = np.asarray(x.mean(axes, dtype=np.float64))
    if x.ndim == 2 and x.size > _LARGE:
        pieces = (x[i : i + _ROWS] - mean for i in range(0, len(x), _ROWS))
        std = np.sqrt(sum(np.einsum("nd,nd->d", piece, piece) for piece in pieces) / len(x))
    else:
        std = np.asarray(x.std(axes, dtype=np.float64))
    # A constant column has no scale; rounding can leave it one that is far below its mean's.
    return mean, np.where(std > 1e-7 * np.abs(mean), std, 1.0)


def standardise(x: np.ndarray, mean: np.ndarray, std: np.ndarray) -> np.ndarray:
    """float32 `[n, ...]`, a new array; JAX can use a large one without a copy."""
    if x.size > _LARGE:
        space = np.empty(x.size + _ALIGNED // 4, np.float32)
        first = -space.ctypes.data % _ALIGNED // 4
        out = space[first : first + x.size].reshape(x.shape)
        out[...] = x
    else:
        out = x.astype(np.float32)
    out -= mean.astype(np.float32)
    out /= std.astype(np.float32)
    return out


def _as_array(what: str, x: Any) -> np.ndarray:
    """NumPy's view of x, whatever its library; ragged lists and the like raise."""
    if hasattr(x, "toarray") and hasattr(x, "tocsr"):
        x = _from_sparse(what, x)
    elif type(x).__module__.partition(".")[0] == "torch" and hasattr(x, "detach"):
        x = x.detach().cpu()
        x = x.float().numpy() if "bfloat16" in str(x.dtype) else x.numpy()
    elif isinstance(x, np.ma.MaskedArray):
        x = np.ma.filled(x.astype(np.float64), np.nan) if x.dtype.kind in "buif" else x.filled()
    elif isinstance(x, jax.Array) and jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
        raise UserError(f"{what} is a PRNG key: the order of arguments is (key, x, y, ...)")
    try:
        array = np.asarray(x)
    except ValueError as error:  # a list of rows that are not alike
        lengths = [len(row) if hasattr(row, "__len__") else 0 for row in x]
        other = next((i for i, length in enumerate(lengths) if length != lengths[0]), 0)
        raise UserError(
            f"{what} has {lengths[0]} numbers in row 0 and {lengths[other]} in row {other}: "
            "give all rows the same shape"
        ) from error
    except (TypeError, RuntimeError) as error:
        raise UserError(f"{what} is of type {type(x).__name__}: {_GIVE}") from error
    if array.ndim == 0 and array.dtype.kind in "OUS":
        raise UserError(f"{what} is {_short(x)}: {_GIVE}")
    return array


def _from_sparse(what: str, x: Any) -> np.ndarray:
    needed = 4 * math.prod(x.shape)
    if needed > memory.total() // 4:
        raise UserError(
            f"{what} is a sparse matrix that takes {needed / 2**30:.1f} GB as an array: reduce its "
            "columns first, for example with sklearn.decomposition.TruncatedSVD"
        )
    return x.toarray()


def _is_frame(x: Any) -> bool:
    return hasattr(x, "columns") and hasattr(x, "to_numpy")


def _from_frame(what: str, frame: Any) -> np.ndarray:
    """Numbers of a DataFrame; missing ones are NaN, which is found later."""
    for name, kind in zip(frame.columns, frame.dtypes, strict=True):
        text = str(kind).lower()
        if not any(part in text for part in ("int", "float", "bool", "double", "decimal")):
            raise UserError(
                f"{what} has the column {str(name)!r} of type {kind}: encode it as numbers, for "
                "example with pandas.get_dummies, or drop it"
            )
    try:
        return frame.to_numpy(dtype=np.float64, na_value=np.nan)
    except TypeError:  # not pandas
        return frame.to_numpy()


def _first_text(array: np.ndarray) -> tuple[int, ...] | None:
    """Where an array of objects first holds text."""
    for place, value in np.ndenumerate(array):
        if isinstance(value, str | bytes):
            return place
    return None


def _refuse_text(what: str, array: np.ndarray, names: list[str] | None) -> None:
    place = _first_text(array) or (0,) * array.ndim
    raise UserError(
        f"{what} holds text, {_plain(array[place])!r} at {_where(place, names)}: encode it as "
        "numbers"
    )


def _check_finite(what: str, x: np.ndarray, names: list[str] | None) -> None:
    for start in range(0, len(x), _ROWS):
        bad = ~np.isfinite(x[start : start + _ROWS])
        if bad.any():
            place = np.argwhere(bad)[0]
            place[0] += start
            place = tuple(place.tolist())
            raise UserError(
                f"{what} is {x[place]} at {_where(place, names)}: remove or replace what is NaN, "
                "infinite or beyond float32"
            )


def _where(place: Sequence[int], names: list[str] | None) -> str:
    """Row and column, in words."""
    if len(place) == 2:
        column = f" ({names[place[1]]!r})" if names else ""
        return f"row {place[0]}, column {place[1]}{column}"
    return f"row {place[0]}, place {tuple(place[1:])}"


def _from_objects(what: str, array: np.ndarray) -> np.ndarray:
    """Objects that are all text, or all numbers, as an array of those."""
    flat = array.ravel().tolist()
    for row, value in enumerate(flat):
        if value is None or type(value).__name__ in ("NAType", "NaTType") or value != value:
            raise UserError(f"{what} is {value!r} at row {row}: remove that row or label it")
    if all(isinstance(value, str) for value in flat):
        return array.astype(str)
    if any(isinstance(value, str) for value in flat):
        raise UserError(f"{what} mixes text and numbers: use y.astype(str), or numbers only")
    try:
        return np.array(flat).reshape(array.shape)
    except (TypeError, ValueError) as error:
        raise UserError(
            f"{what} holds {_short(flat[0])}: give numbers or text as labels"
        ) from error


def _is_one_hot(y: np.ndarray) -> bool:
    return y.dtype.kind in "buif" and bool(np.all((y == 0) | (y == 1)) and np.all(y.sum(1) == 1))


def _are_whole(y: np.ndarray) -> bool:
    return bool(np.all(y == np.round(y)))


def _as_numbers(what: str, y: np.ndarray) -> np.ndarray:
    if y.dtype.kind not in "buif":
        raise UserError(f"{what} holds text, {_plain(y.flat[0])!r}: a regression needs numbers")
    return y.astype(np.float64)


def _as_classes(what: str, y: np.ndarray) -> np.ndarray:
    if y.ndim > 1:
        raise UserError(
            f"{what} has shape {y.shape} and its rows are not one-hot: give one label per sample, "
            "[n], or loss_fn='squared_error' for a regression"
        )
    if y.dtype.kind == "f":
        if not _are_whole(y):
            value = y[y != np.round(y)][0]
            raise UserError(
                f"{what} has the label {value}, which is not whole: give classes, or "
                "loss_fn='squared_error' for a regression"
            )
        y = y.astype(np.int64)
    return y


def _pair(validation: Any) -> tuple[Any, Any]:
    if not isinstance(validation, tuple | list) or len(validation) != 2:
        raise UserError(f"validation is {_short(validation)}: give a pair (x, y)")
    return validation[0], validation[1]


def _check_rows(first: str, x: np.ndarray, second: str, y: np.ndarray) -> None:
    if len(x) != len(y):
        raise UserError(
            f"{first} has {len(x)} rows and {second} {len(y)}: give one target per sample"
        )


def _check_alike(first, shape, names, second, other_shape, other_names) -> None:
    if shape != other_shape:
        raise UserError(
            f"a sample has shape {shape} in {first} and {other_shape} in {second}: make them alike"
        )
    if names and other_names and names != other_names:
        place = next(i for i, (a, b) in enumerate(zip(names, other_names, strict=True)) if a != b)
        raise UserError(
            f"column {place} is {names[place]!r} in {first} and {other_names[place]!r} in "
            f"{second}: give the same columns in the same order"
        )


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def _short(value: Any) -> str:
    text = " ".join(repr(value).split())
    return text if len(text) <= 60 else f"a {type(value).__name__}"
