"""What the value of a config key may be: its type, whether it is finite, and its range.

The type is that of the default. The records that a section fills check more; they meet values only
that a float32 and an int32 can hold.
"""

from collections.abc import Mapping
from typing import Any

from pbcs_jax.errors import UserError, check_number

LARGEST_FLOAT, LARGEST_INT = 1e9, 2**31 - 1
LONGEST = 4096
"""Characters of a text: no path may be longer."""

_LEAST = {
    "num_inputs": 1,
    "evaluation.num_seeds": 1,
    "checkpoint_every": 1,
    "inputs.patch": 1,
    "analysis.repeats": 1,
}
_MOST = {
    "seed": 2**32 - 1,  # of a key of JAX
    "sweep.seeds": 2**32 - 1,
    "model.width": 2**16,
    "evaluation.width": 2**16,
    "evaluation.num_seeds": 10_000,
}
_LISTS = {
    "continual.betas": float,
    "methods": str,
    "evaluation.transfer": str,
    "sweep.points": str,
    "sweep.seeds": int,
}


def check_values(given: Mapping[str, Any], defaults: Mapping[str, Any]) -> None:
    """Raises for the first value that cannot be.

    Args:
      given: flattened, by key; all of them keys of `defaults`.
      defaults: the same of the experiment's template.

    >>> check_values({"inner.tolerance": float("nan")}, {"inner.tolerance": 0.0})
    Traceback (most recent call last):
    pbcs_jax.errors.UserError: inner.tolerance is nan: use a number of at least 0 and of at most \
1000000000.0
    """
    for key, value in given.items():
        if key not in _LISTS:
            _check(key, value, type(defaults[key]))
        elif isinstance(value, list | tuple):
            for one in value:
                _check(key, one, _LISTS[key])
        else:
            raise UserError(f"{key} is {_short(value)}: use a tuple")


def _check(key: str, value: Any, kind: type) -> None:
    if kind is bool:
        if not isinstance(value, bool):
            raise UserError(f"{key} is {_short(value)}: use True or False")
    elif kind is str:
        if not isinstance(value, str) or len(value) > LONGEST or not _is_unicode(value):
            raise UserError(f"{key} is {_short(value)}: use text of at most {LONGEST} characters")
    else:
        whole = kind is int
        most = _MOST.get(key, LARGEST_INT if whole else LARGEST_FLOAT)
        if isinstance(value, int) and abs(value) > 2**63:  # of hundreds of digits, perhaps
            raise UserError(f"{key} is beyond 2**63: use a number of at most {most}")
        check_number(key, value, least=_LEAST.get(key, 0), most=most, whole=whole)
        if whole and not isinstance(value, int):
            raise UserError(f"{key} is {value!r}: write a whole number without a point")


def _is_unicode(text: str) -> bool:
    """Whether it can be written to a file: bytes of a shell may be none."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return "\0" not in text


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 100 else f"{text[:80]}... ({len(text)} characters)"
