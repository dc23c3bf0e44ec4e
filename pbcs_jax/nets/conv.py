"""The convolution that all nets share, and 2x2 max-pooling.

The gradients of XLA's own convolution are tens of times slower on CPU than a matmul of the same
size, and worse still under `vmap` over masks, where every mask has its own weights
(openxla/xla#34273, jax#12868). So on CPU a convolution is written as matmuls, or together with its
gradients in the form that XLA does well; elsewhere the backend's own convolution is used. Forward
mode, reverse mode, `vmap` and higher derivatives work for all of them.
"""

from functools import partial

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax import lax

from pbcs_jax.errors import UserError
from pbcs_jax.nets import winograd
from pbcs_jax.nets.direct import Pads, direct_conv


def max_pool(x: jax.Array) -> jax.Array:
    """The largest of every 2x2 window; a last odd row or column is dropped, as in `nn.max_pool`.

    Four slices, and no `lax.reduce_window`, whose gradient is slow on CPU.

    Args:
      x: `[B, H, W, C]`.

    Returns:
      `[B, H // 2, W // 2, C]`.
    """
    h, w = x.shape[1] // 2 * 2, x.shape[2] // 2 * 2
    return max_of_four(jnp.stack([x[:, i:h:2, j:w:2] for i in (0, 1) for j in (0, 1)]))


def wants_batch_last(channels: int) -> bool:
    """Whether `Conv` is faster on `[C, H, W, B]`: on CPU, where few channels fill no vector."""
    return jax.default_backend() == "cpu" and channels < 16


class Conv(nn.Module):
    """2-D convolution with `nn.Conv`'s parameters, and optionally `max_pool` of its output.

    The pooling is part of the layer because it is then cheaper: the bias is added after it (the
    same values, a quarter of the work), and each implementation pools where its values lie best.

    Attributes:
      features: number of output channels.
      kernel_size: `(kh, kw)`. The parameter `kernel` is `[kh, kw, C, features]`.
      strides: `(sh, sw)`.
      padding: 'SAME' or 'VALID'.
      use_bias: whether to add the parameter `bias`, `[features]`.
      pool: whether to max-pool the output over 2x2 windows.
      batch_last: the input and the output are `[C, H, W, B]`; see `wants_batch_last`.
      implementation: 'patches', one matmul of all patches; 'winograd', fewer multiplications, where
        it applies (3x3 or 5x5, stride 1, 8 channels or more) and patches elsewhere; 'direct', see
        `nets.direct`; 'native', XLA's own; 'auto', the fastest on this backend. They agree to
        rounding.
    """

    features: int
    kernel_size: tuple[int, int]
    strides: tuple[int, int] = (1, 1)
    padding: str = "SAME"
    use_bias: bool = True
    pool: bool = False
    batch_last: bool = False
    implementation: str = "auto"

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """`[B, H, W, C]` to `[B, H', W', features]`."""
        shape = (*self.kernel_size, x.shape[0 if self.batch_last else -1], self.features)
        kernel = self.param("kernel", nn.initializers.lecun_normal(), shape)
        rows, columns = lax.padtype_to_pads(
            x.shape[1:3], self.kernel_size, self.strides, self.padding
        )
        pads = (rows, columns)
        x = x.astype(kernel.dtype)
        odd = all(size % 2 for size in self.kernel_size)
        if self.batch_last and self.pool and odd and self.strides == (1, 1):
            x = _batch_last_conv(_pad(x, pads), kernel)
        else:
            x = swap_batch(x) if self.batch_last else x
            x = self._convolve(x, kernel, pads)
            x = swap_batch(x) if self.batch_last else x
        if self.use_bias:
            bias = self.param("bias", nn.initializers.zeros_init(), (self.features,))
            x = x + (bias[:, None, None, None] if self.batch_last else bias)
        return x

    def _convolve(self, x: jax.Array, kernel: jax.Array, pads: Pads) -> jax.Array:
        name = self.implementation
        if name == "auto":
            name = self._fastest(kernel.shape[2])
        known = {
            "patches": _patches_conv,
            "winograd": _winograd_conv,
            "direct": _direct_conv,
            "native": _native_conv,
        }
        if name not in known:
            raise UserError(
                f"Conv implementation {name!r} is unknown: use 'auto' or one of {', '.join(known)}."
            )
        return known[name](x, kernel, self.strides, pads, self.pool)

    def _fastest(self, channels: int) -> str:
        if jax.default_backend() != "cpu":
            return "native"
        if self.kernel_size == (1, 1):
            return "patches"  # a matmul as it is
        # Winograd's matmuls have `channels` columns, and need a few to be fast.
        wide = channels >= 32 and self.strides == (1, 1)
        return "winograd" if self.pool or wide else "direct"


def swap_batch(x: jax.Array) -> jax.Array:
    """`[B, H, W, C]` to `[C, H, W, B]`, and back."""
    return x.transpose(3, 1, 2, 0)


def _pad(x: jax.Array, pads: Pads) -> jax.Array:
    return jnp.pad(x, ((0, 0), *pads, (0, 0)))


def _native_conv(
    x: jax.Array, kernel: jax.Array, strides: tuple[int, int], pads: Pads, pool: bool
) -> jax.Array:
    y = lax.conv_general_dilated(
        x, kernel, strides, pads, dimension_numbers=("NHWC", "HWIO", "NHWC")
    )
    return max_pool(y) if pool else y


def _direct_conv(
    x: jax.Array, kernel: jax.Array, strides: tuple[int, int], pads: Pads, pool: bool
) -> jax.Array:
    y = direct_conv(x, kernel, strides, pads)
    return max_pool(y) if pool else y


def _winograd_conv(
    x: jax.Array, kernel: jax.Array, strides: tuple[int, int], pads: Pads, pool: bool
) -> jax.Array:
    padded = _pad(x, pads)
    if not winograd.applies(padded, kernel, strides):
        return _patches_conv(x, kernel, strides, pads, pool)
    window = 2 if pool else 1
    h, w = ((size - kernel.shape[0] + 1) // window for size in padded.shape[1:3])
    y = winograd.winograd_tiles(padded, kernel, window)
    return winograd.untile(max_of_four(y) if pool else y[0])[:, :h, :w]


def _patches_conv(
    x: jax.Array, kernel: jax.Array, strides: tuple[int, int], pads: Pads, pool: bool
) -> jax.Array:
    x = _pad(x, pads)
    if not pool:
        return _patches_matmul(x, kernel, strides)
    sh, sw = strides
    shifted = _shifted(kernel, strides)
    y = _patches_matmul(x, jnp.concatenate(shifted, axis=-1), (2 * sh, 2 * sw))
    return max_of_four(y.reshape(*y.shape[:-1], 4, -1), axis=-2)


def _shifted(kernel: jax.Array, strides: tuple[int, int]) -> list[jax.Array]:
    """The kernel at the four places of a pooling window.

    One patch covers a whole window. Its four outputs are four sets of channels, whose kernels are
    the same one shifted: (kh + sh)(kw + sw) / (kh kw) times the products, for a quarter of the
    patches, and pooling becomes the largest of four arrays.
    """
    sh, sw = strides
    places = [(i, j) for i in (0, sh) for j in (0, sw)]
    return [jnp.pad(kernel, ((i, sh - i), (j, sw - j), (0, 0), (0, 0))) for i, j in places]


def _patches_matmul(x: jax.Array, kernel: jax.Array, strides: tuple[int, int]) -> jax.Array:
    """VALID convolution of `[B, H, W, C]` with `[kh, kw, C, F]` as one matmul of its patches."""
    kh, kw, _, features = kernel.shape
    h, w = x.shape[1] - kh + 1, x.shape[2] - kw + 1
    slices = [
        x[:, i : i + h : strides[0], j : j + w : strides[1]] for i in range(kh) for j in range(kw)
    ]
    patches = jnp.concatenate(slices, axis=-1)
    # Two axes, not four: the gradient of a matmul over [B, H, W] makes XLA transpose its operand.
    rows = patches.reshape(-1, patches.shape[-1]) @ kernel.reshape(-1, features)
    return rows.reshape(*patches.shape[:-1], features)


def _batch_last_conv(x: jax.Array, kernel: jax.Array) -> jax.Array:
    """VALID convolution of `[C, H, W, B]` with an odd kernel, stride 1, and `max_pool` of it.

    Even and odd rows and columns are taken apart first. Then a window's patch is made of slices
    without a stride, rows before columns, and so is the gradient, where a stride costs most.
    """
    channels, _, _, batch = x.shape
    kh, kw, _, features = kernel.shape
    h, w = ((size - k + 1) // 2 for size, k in zip(x.shape[1:3], (kh, kw), strict=True))
    rows, columns = (kh + 1) // 2, (kw + 1) // 2
    x = x[:, : 2 * h + kh - 1, : 2 * w + kw - 1]
    x = x.reshape(channels, h + rows - 1, 2, w + columns - 1, 2, batch).transpose(2, 4, 0, 1, 3, 5)
    x = jnp.stack([x[:, :, :, i : i + h] for i in range(rows)])
    x = jnp.stack([x[..., j : j + w, :] for j in range(columns)])  # [columns, rows, 2, 2, C, ...]
    taps = jnp.stack(_shifted(kernel, (1, 1)))
    taps = taps.reshape(4, rows, 2, columns, 2, channels, features).transpose(0, 6, 3, 1, 2, 4, 5)
    taps = taps.reshape(4 * features, -1)
    y = taps @ x.reshape(taps.shape[1], -1)
    return max_of_four(y.reshape(4, features, h, w, batch))


@partial(jax.custom_jvp, nondiff_argnums=(1,))
def max_of_four(x: jax.Array, axis: int = 0) -> jax.Array:
    """The largest along an axis of four; NaN stays NaN, so that a diverged model is seen.

    At a tie the first takes all of the gradient, as in flax. Written as pairs: XLA's own reduction
    over such an axis is slow on CPU, and so is the gradient of three selections.
    """
    a, b, c, d = _four(x, axis)
    return jnp.maximum(jnp.maximum(a, b), jnp.maximum(c, d))


@max_of_four.defjvp
def _max_of_four_jvp(axis, primals, tangents):
    (x,), (tangent,) = primals, tangents
    largest = max_of_four(x, axis)
    chosen: list[jax.Array] = []
    taken = jnp.zeros(largest.shape, bool)
    for one in _four(x, axis):
        chosen.append((one == largest) & ~taken)
        taken = taken | chosen[-1]
    a, b, c, d = _four(jnp.where(jnp.stack(chosen, axis), tangent, 0), axis)
    return largest, (a + b) + (c + d)


def _four(x: jax.Array, axis: int) -> list[jax.Array]:
    # Not `moveaxis`: XLA would make that a copy.
    return [lax.index_in_dim(x, place, axis, keepdims=False) for place in range(4)]
