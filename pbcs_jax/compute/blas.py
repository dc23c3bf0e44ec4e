"""LAPACK on one thread: XLA calls that of SciPy, whose threads cost more than they give here."""

import contextlib
from collections.abc import Iterator

import jax
import threadpoolctl


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Within it, LAPACK and BLAS of SciPy and NumPy work on one thread; afterwards as before.

    The matrices of one mask are small. OpenBLAS hands them out to all cores again and again, and
    its threads wait for each other. Where other programs used the cores too, a Cholesky factor of
    592 rows took half a second of processor time, and 1 ms on one thread. With the cores to itself
    a selection gains less, 1.4 times. XLA's own products keep all cores.
    """
    if jax.default_backend() != "cpu":
        yield
        return
    import scipy.linalg  # noqa: F401 (a limit holds only for libraries that are loaded)

    with threadpoolctl.threadpool_limits(limits=1, user_api="blas"):
        yield
