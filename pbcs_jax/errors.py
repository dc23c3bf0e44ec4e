"""The one error that a user can cause, always in one form: WHAT is VALUE: REMEDY."""

import math
from collections.abc import Iterable
from numbers import Real
from typing import Any


class UserError(ValueError):
    """What was given, what is allowed, and what to do, in one line.

    The command line prints it without a traceback and exits with code 2.
    """


class DamagedError(UserError):
    """A file is not as it was written."""

    def __init__(self, path: Any, why: str, remedy: str = "restore it or remove it"):
        """`why` is what was noticed, `remedy` what the user can do."""
        super().__init__(f"file {str(path)!r} is damaged ({why}): {remedy}")
        self.path, self.why = path, why


def check_known(what: str, value: Any, known: Iterable[str], more: str = "") -> None:
    """Raises unless `value` is one of `known`.

    >>> check_known("estimator", "magic", ("pge", "path"), ", or an Estimator")
    Traceback (most recent call last):
    pbcs_jax.errors.UserError: estimator is 'magic': use one of pge, path, or an Estimator
    """
    known = list(known)
    if not isinstance(value, str) or value not in known:
        raise UserError(f"{what} is {value!r}: use one of {', '.join(known)}{more}")


def check_switch(what: str, value: Any) -> None:
    """Raises unless `value` is True or False."""
    if value is not True and value is not False:
        raise UserError(f"{what} is {value!r}: use True or False")


def check_number(
    what: str,
    value: Any,
    least: float = -math.inf,
    most: float = math.inf,
    above: bool = False,
    below: bool = False,
    whole: bool = False,
) -> None:
    """Raises unless `value` is a finite number from `least` to `most`.

    Args:
      what: its name.
      value: given.
      least: the smallest allowed; with `above`, not allowed itself.
      most: the largest allowed; with `below`, not allowed itself.
      above: see `least`.
      below: see `most`.
      whole: whether it must be a whole number.

    >>> check_number("num_masks", 0, least=1)
    Traceback (most recent call last):
    pbcs_jax.errors.UserError: num_masks is 0: use a number of at least 1
    """
    is_number = isinstance(value, Real) and not isinstance(value, bool)
    if not is_number and getattr(value, "shape", None) == () and hasattr(value, "item"):
        value = value.item()  # an array of one number, such as JAX's
        is_number = isinstance(value, Real) and not isinstance(value, bool)
    if is_number and math.isfinite(value) and least <= value <= most:
        refused = (above and value == least) or (below and value == most)
        if not refused and not (whole and value != int(value)):
            return
    bounds = [f"above {least}" if above else f"of at least {least}"] if least > -math.inf else []
    bounds += [f"below {most}" if below else f"of at most {most}"] if most < math.inf else []
    wanted = " and ".join(bounds) or "that is finite"
    raise UserError(f"{what} is {value!r}: use a {'whole ' * whole}number {wanted}")


def one_line(error: Exception) -> str:
    """Type and first line of a library's error, which may run over pages."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0][:200]}" if lines else type(error).__name__
