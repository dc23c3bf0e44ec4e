"""A folder of arrays of `np.save`; training samples are mapped into memory and read by index."""

from pathlib import Path

import numpy as np

from pbcs_jax.errors import UserError, one_line
from pbcs_jax.npz import check_file
from pbcs_jax.rows import Rows

NAMES = ("x_train", "y_train", "x_test", "y_test")
REMEDY = "give a folder with " + ", ".join(f"{name}.npy" for name in NAMES)


def load_npy(path: str) -> tuple[Rows, np.ndarray, np.ndarray, np.ndarray]:
    """x_train by index, and y_train, x_test, y_test as arrays.

    Args:
      path: a folder of four files.
    """
    if not path:
        raise UserError(f"data path is '' for source 'npy': {REMEDY}")
    folder = Path(path).expanduser()
    if not folder.is_dir():
        raise UserError(f"data folder {path!r} is no folder: {REMEDY}")
    files = [check_file("data file", folder / f"{name}.npy", REMEDY) for name in NAMES]
    try:
        y_train, x_test, y_test = (np.load(file, allow_pickle=False) for file in files[1:])
    except (OSError, ValueError, EOFError) as error:
        raise UserError(
            f"data folder {path!r} has a file that cannot be read ({one_line(error)}): save plain "
            "numeric arrays with np.save"
        ) from error
    return Rows.of_npy(str(files[0])), y_train, x_test, y_test
