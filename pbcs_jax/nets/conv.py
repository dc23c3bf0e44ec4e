"""The convolution that all nets share, and 2x2 max-pooling.

The gradients of XLA's own convolution are tens of times slower on CPU than a matmul of the same
size, and worse still under `vmap` over masks, where every mask has its own weights
(openxla/xla#34273, jax#12868). So on CPU a convolution is written as matmuls, or together with its
gradients in the form that XLA does well; elsewhere the backend's own convolution is used. Forward
mode, reverse mode, `vmap` and higher derivatives work for all of them.
"""

from collections.abc import Callable
from functools import partial

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax import lax

from pbcs_jax.errors import check_known
from pbcs_jax.nets import winograd
from pbcs_jax.nets.backend import platform
from pbcs_jax.nets.direct import Pads, direct_conv

# `(outputs, axis of the four in a window, axis of the batch) -> outputs without the former`
Pool = Callable[[jax.Array, int, int], jax.Array]
# What is left out of a window: whatever bias is added, a ReLU makes 0 of it.
_LEFT_OUT = -1e30


def max_pool(x: jax.Array, pool: Pool | None = None) -> jax.Array:
    """The largest of every 2x2 window; a last odd row or column is dropped, as in `nn.max_pool`.

    Four slices, and no `lax.reduce_window`, whose gradient is slow on CPU.

    Args:
      x: `[B, H, W, C]`.
      pool: what is taken of the four; the largest if None.

    Returns:
      `[B, H // 2, W // 2, C]`.
    """
    h, w = x.shape[1] // 2 * 2, x.shape[2] // 2 * 2
    windows = jnp.stack([x[:, i:h:2, j:w:2] for i in (0, 1) for j in (0, 1)])
    return (pool or _largest)(windows, 0, 1)


def wants_batch_last(channels: int) -> bool:
    """Whether `Conv` is faster on `[C, H, W, B]`: on CPU, where few channels fill no vector."""
    return platform() == "cpu" and channels < 16


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
      dropout: with `pool`, for a ReLU to follow: probability that a value is dropped when training,
        before the pooling. It leaves its window; where all four do, the output is very negative.
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
    dropout: float = 0.0
    batch_last: bool = False
    implementation: str = "auto"

    @nn.compact
    def __call__(self, x: jax.Array, train: bool = False) -> jax.Array:
        """`[B, H, W, C]` to `[B, H', W', features]`; `train` is for `dropout`."""
        shape = (*self.kernel_size, x.shape[0 if self.batch_last else -1], self.features)
        kernel = self.param("kernel", nn.initializers.lecun_normal(), shape)
        rows, columns = lax.padtype_to_pads(
            x.shape[1:3], self.kernel_size, self.strides, self.padding
        )
        pads = (rows, columns)
        x = x.astype(kernel.dtype)
        odd = all(size % 2 for size in self.kernel_size)
        drops = self.pool and train and self.dropout > 0
        pool: Pool | None = _largest if self.pool else None
        if drops:
            pool = _largest_kept(self.make_rng("dropout"), self.dropout)
        if self.batch_last and pool and odd and self.strides == (1, 1):
            x = _batch_last_conv(_pad(x, pads), kernel, pool)
        else:
            x = swap_batch(x) if self.batch_last else x
            x = self._convolve(x, kernel, pads, pool)
            x = swap_batch(x) if self.batch_last else x
        if self.use_bias:
            bias = self.param("bias", nn.initializers.zeros_init(), (self.features,))
            x = x + (bias[:, None, None, None] if self.batch_last else bias)
        return x / (1 - self.dropout) if drops else x

    def _convolve(
        self, x: jax.Array, kernel: jax.Array, pads: Pads, pool: Pool | None
    ) -> jax.Array:
        name = self.implementation
        if name == "auto":
            name = self._fastest(kernel.shape[2])
        known = {
            "patches": _patches_conv,
            "winograd": _winograd_conv,
            "direct": _direct_conv,
            "native": _native_conv,
        }
        check_known("implementation", name, known, ", or auto")
        return known[name](x, kernel, self.strides, pads, pool)

    def _fastest(self, channels: int) -> str:
        if platform() != "cpu":
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
    x: jax.Array, kernel: jax.Array, strides: tuple[int, int], pads: Pads, pool: Pool | None
) -> jax.Array:
    y = lax.conv_general_dilated(
        x, kernel, strides, pads, dimension_numbers=("NHWC", "HWIO", "NHWC")
    )
    return max_pool(y, pool) if pool else y


def _direct_conv(
    x: jax.Array, kernel: jax.Array, strides: tuple[int, int], pads: Pads, pool: Pool | None
) -> jax.Array:
    y = direct_conv(x, kernel, strides, pads)
    return max_pool(y, pool) if pool else y


def _winograd_conv(
    x: jax.Array, kernel: jax.Array, strides: tuple[int, int], pads: Pads, pool: Pool | None
) -> jax.Array:
    padded = _pad(x, pads)
    if not winograd.applies(padded, kernel, strides):
        return _patches_conv(x, kernel, strides, pads, pool)
    window = 2 if pool else 1
    h, w = ((size - kernel.shape[0] + 1) // window for size in padded.shape[1:3])
    y = winograd.winograd_tiles(padded, kernel, window)
    return winograd.untile(pool(y, 0, 3) if pool else y[0])[:, :h, :w]


def _patches_conv(
    x: jax.Array, kernel: jax.Array, strides: tuple[int, int], pads: Pads, pool: Pool | None
) -> jax.Array:
    x = _pad(x, pads)
    if not pool:
        return _patches_matmul(x, kernel, strides)
    sh, sw = strides
    shifted = _shifted(kernel, strides)
    y = _patches_matmul(x, jnp.concatenate(shifted, axis=-1), (2 * sh, 2 * sw))
    return pool(y.reshape(*y.shape[:-1], 4, -1), 3, 0)


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


def _batch_last_conv(x: jax.Array, kernel: jax.Array, pool: Pool) -> jax.Array:
    """VALID convolution of `[C, H, W, B]` with an odd kernel, stride 1, and its pooling.

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
    return pool(y.reshape(4, features, h, w, batch), 0, 4)


def _largest(windows: jax.Array, axis: int, batch_axis: int) -> jax.Array:
    del batch_axis
    return max_of_four(windows, axis)


def _largest_kept(key: jax.Array, rate: float) -> Pool:
    """The largest of those that are not dropped.

    A ReLU takes what is left out for 0. So this is dropout before the pooling, without a value
    being multiplied, and the bias can still be added afterwards.

    Args:
      key: PRNG key, consumed. A row's numbers do not depend on how many rows there are.
      rate: of the dropout, in steps of 1/256: a random byte decides.
    """

    def pool(windows, axis, batch_axis):
        # A word for each window, and a byte of it for each of the four.
        shape = list(windows.shape)
        batch = shape.pop(batch_axis)
        del shape[axis - (batch_axis < axis)]
        words = jax.random.bits(key, (batch, *shape), jnp.uint32)
        words = jnp.moveaxis(words, 0, batch_axis - (axis < batch_axis))

        def drop(windows, words):
            numbers = jnp.stack([(words >> shift) & 255 for shift in (0, 8, 16, 24)], axis)
            return jnp.where(numbers < round(256 * rate), _LEFT_OUT, windows)

        if platform() == "cpu":
            # XLA would do all of this again for every value of the gradient: three times the time
            # of a training step. It keeps what comes out of a branch. A net that has diverged drops
            # nothing.
            first = windows[(0,) * windows.ndim]
            kept = lax.cond(jnp.isfinite(first), drop, lambda windows, _: windows, windows, words)
        else:
            kept = drop(windows, words)
        return max_of_four(kept, axis)

    return pool


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
