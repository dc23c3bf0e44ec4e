"""A convolution whose gradients are convolutions in the one form that XLA does well on CPU.

XLA hands a convolution on CPU to a library (YNNPACK or Eigen) that packs patches in the cache and
multiplies at the rate of a large matmul, but only if images are `[B, H, W, C]` and kernels
`[kh, kw, C, F]`. The derivatives that JAX writes have other layouts, and run 4 to 130 times slower.
So all three of

    y = conv(x, w)        x = the gradient from (y, w)        w = the gradient from (x, y)

are written here in that form. Each is linear in its two operands, and the transpose of any of them
in either operand is again one of them. So they are one primitive: given two of `x`, `w` and `y`,
the third. That closes derivatives of any order, forward or reverse.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

Pads = tuple[tuple[int, int], tuple[int, int]]
_ROLES = ("x", "w", "y")
# A matmul needs this many columns to run at its full rate.
_ENOUGH_FEATURES = 32


class Geometry(NamedTuple):
    """Which convolution: the shapes of images and kernel without the batch, strides, padding."""

    size: tuple[int, int]
    channels: int
    kernel_size: tuple[int, int]
    features: int
    strides: tuple[int, int]
    pads: Pads

    @property
    def output_size(self) -> tuple[int, int]:
        h, w = (
            (size + lo + hi - k) // stride + 1
            for size, (lo, hi), k, stride in zip(
                self.size, self.pads, self.kernel_size, self.strides, strict=True
            )
        )
        return h, w

    def shape(self, role: str, batch: int) -> tuple[int, ...]:
        """Of `x` `[B, H, W, C]`, `w` `[kh, kw, C, F]` or `y` `[B, H', W', F]`."""
        return {
            "x": (batch, *self.size, self.channels),
            "w": (*self.kernel_size, self.channels, self.features),
            "y": (batch, *self.output_size, self.features),
        }[role]


def direct_conv(x: jax.Array, kernel: jax.Array, strides: tuple[int, int], pads: Pads) -> jax.Array:
    """Convolution of `[B, H, W, C]` with `[kh, kw, C, F]` to `[B, H', W', F]`.

    Args:
      pads: rows before and after, columns before and after; less than the kernel.
    """
    kh, kw, channels, features = kernel.shape
    geometry = Geometry((x.shape[1], x.shape[2]), channels, (kh, kw), features, strides, pads)
    return _third_p.bind(x, kernel, wanted="y", geometry=geometry)


def _given(wanted: str) -> tuple[str, str]:
    """The roles of the two operands, in their order."""
    a, b = (role for role in _ROLES if role != wanted)
    return a, b


def _third(a: jax.Array, b: jax.Array, *, wanted: str, geometry: Geometry) -> jax.Array:
    make = {"y": _output, "x": _input, "w": _kernel}[wanted]
    return make(a, b, geometry)


def _conv(
    x: jax.Array,
    kernel: jax.Array,
    pads: Pads,
    strides: tuple[int, int] = (1, 1),
    dilation: tuple[int, int] = (1, 1),
) -> jax.Array:
    return lax.conv_general_dilated(
        x,
        kernel,
        strides,
        pads,
        rhs_dilation=dilation,
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
    )


def _paired_conv(x: jax.Array, kernel: jax.Array, pads: Pads) -> jax.Array:
    """`_conv` with stride 1; with few features, of two neighbouring columns at once.

    Twice the features for 4 / 3 of the products (3x3), and the output is the same array.
    """
    kw, features = kernel.shape[1], kernel.shape[-1]
    h, w = (
        size + lo + hi - k + 1
        for size, (lo, hi), k in zip(x.shape[1:3], pads, kernel.shape[:2], strict=True)
    )
    if features >= _ENOUGH_FEATURES or w % 2 or kw < 3:
        return _conv(x, kernel, pads)
    both = [jnp.pad(kernel, ((0, 0), (j, 1 - j), (0, 0), (0, 0))) for j in (0, 1)]
    y = _conv(x, jnp.concatenate(both, axis=-1), pads, (1, 2))
    return y.reshape(x.shape[0], h, w, features)


def _output(x: jax.Array, kernel: jax.Array, geometry: Geometry) -> jax.Array:
    if geometry.strides == (1, 1):
        return _paired_conv(x, kernel, geometry.pads)
    return _conv(x, kernel, geometry.pads, geometry.strides)


def _input(kernel: jax.Array, y: jax.Array, geometry: Geometry) -> jax.Array:
    """A stride s is s² convolutions, one for each place in an s x s block of the input.

    They share `y`, so they are one convolution with s² as many channels, and no stride.
    """
    sh, sw = geometry.strides
    kh, kw, channels, features = kernel.shape
    height, width = geometry.size
    (top, bottom), (left, right) = geometry.pads
    if (sh, sw) == (1, 1):
        pads = ((kh - 1 - top, kh - 1 - bottom), (kw - 1 - left, kw - 1 - right))
        return _paired_conv(y, kernel[::-1, ::-1].swapaxes(2, 3), pads)
    rows, columns = -(-kh // sh), -(-kw // sw)
    kernel = jnp.pad(kernel, ((0, rows * sh - kh), (0, columns * sw - kw), (0, 0), (0, 0)))
    kernel = kernel.reshape(rows, sh, columns, sw, channels, features)[::-1, :, ::-1]
    kernel = kernel.transpose(0, 2, 5, 1, 3, 4).reshape(rows, columns, features, -1)
    h, w = -(-(top + height) // sh), -(-(left + width) // sw)  # blocks
    x = _conv(y, kernel, ((rows - 1, h - y.shape[1]), (columns - 1, w - y.shape[2])))
    x = x.reshape(-1, h, w, sh, sw, channels).transpose(0, 1, 3, 2, 4, 5)
    x = x.reshape(-1, h * sh, w * sw, channels)
    return x[:, top : top + height, left : left + width]


def _kernel(x: jax.Array, y: jax.Array, geometry: Geometry) -> jax.Array:
    """The images are the channels of a convolution whose kernel is as large as the output."""
    (top, _), (left, _) = geometry.pads
    rows, columns = (
        (outputs - 1) * stride + k - size  # all the padding that the outputs have seen
        for outputs, stride, k, size in zip(
            y.shape[1:3], geometry.strides, geometry.kernel_size, geometry.size, strict=True
        )
    )
    pads = ((top, rows - top), (left, columns - left))
    w = _conv(x.transpose(3, 1, 2, 0), y.transpose(1, 2, 0, 3), pads, dilation=geometry.strides)
    return w.transpose(1, 2, 0, 3)


def _shape(a, b, *, wanted, geometry):
    batch = {"y": a, "x": b, "w": a}[wanted].shape[0]
    return a.update(shape=geometry.shape(wanted, batch))


def _transpose(place, cotangent, a, b, *, wanted, geometry):
    """The operand at `place` from the other and from the cotangent of what was wanted."""
    given = _given(wanted)
    arrays = {given[1 - place]: (a, b)[1 - place], wanted: cotangent}
    operands = (arrays[role] for role in _given(given[place]))
    return _third_p.bind(*operands, wanted=given[place], geometry=geometry)


def _batch(operands, dims, *, wanted, geometry):
    """Masks one after another: each has its own kernel, and one keeps all cores busy."""
    mapped = [
        None if dim is None else jnp.moveaxis(operand, dim, 0)
        for operand, dim in zip(operands, dims, strict=True)
    ]

    def one(own):
        chosen = (b if a is None else a for a, b in zip(own, operands, strict=True))
        return _third_p.bind(*chosen, wanted=wanted, geometry=geometry)

    return lax.map(one, mapped), 0


_third_p = Primitive("conv_third")
_third_p.def_impl(jax.jit(_third, static_argnames=("wanted", "geometry")))
_third_p.def_abstract_eval(_shape)
ad.defbilinear(_third_p, partial(_transpose, 0), partial(_transpose, 1))
batching.primitive_batchers[_third_p] = _batch
mlir.register_lowering(_third_p, mlir.lower_fun(_third, multiple_results=False))
