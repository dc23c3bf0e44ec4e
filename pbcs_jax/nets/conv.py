"""The convolution that all nets share, and 2x2 max-pooling.

XLA's own convolution is tens of times slower on CPU than a matmul of the same size, and worse still
under `vmap` over masks, where every mask has its own weights (openxla/xla#34273, jax#12868). So on
CPU a convolution is written as matmuls; elsewhere the backend's own convolution is used. All of it
is ordinary traceable code: forward mode, reverse mode, `vmap` and higher derivatives all work.
"""

from collections.abc import Callable, Sequence

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax import lax

from pbcs_jax.errors import UserError
from pbcs_jax.nets import winograd


def max_pool(x: jax.Array) -> jax.Array:
    """The largest of every 2x2 window; a last odd row or column is dropped, as in `nn.max_pool`.

    Four slices and three selections: the gradient of `lax.reduce_window` is slow on CPU.

    Args:
      x: `[B, H, W, C]`.

    Returns:
      `[B, H // 2, W // 2, C]`.
    """
    h, w = x.shape[1] // 2 * 2, x.shape[2] // 2 * 2
    return _max_of_four([x[:, i:h:2, j:w:2] for i in (0, 1) for j in (0, 1)])


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
      implementation: 'patches', one matmul of all patches; 'winograd', fewer multiplications, where
        it applies (3x3 or 5x5, stride 1, 8 channels or more) and patches elsewhere; 'native',
        XLA's own; 'auto', winograd on CPU and native elsewhere. They agree to rounding.
    """

    features: int
    kernel_size: tuple[int, int]
    strides: tuple[int, int] = (1, 1)
    padding: str = "SAME"
    use_bias: bool = True
    pool: bool = False
    implementation: str = "auto"

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """`[B, H, W, C]` to `[B, H', W', features]`."""
        shape = (*self.kernel_size, x.shape[-1], self.features)
        kernel = self.param("kernel", nn.initializers.lecun_normal(), shape)
        pads = lax.padtype_to_pads(x.shape[1:3], self.kernel_size, self.strides, self.padding)
        x = jnp.pad(x.astype(kernel.dtype), ((0, 0), *pads, (0, 0)))
        x = _implementation(self.implementation)(x, kernel, self.strides, self.pool)
        if self.use_bias:
            x = x + self.param("bias", nn.initializers.zeros_init(), (self.features,))
        return x


def _implementation(name: str) -> Callable[..., jax.Array]:
    if name == "auto":
        name = "winograd" if jax.default_backend() == "cpu" else "native"
    known = {"patches": _patches_conv, "winograd": _winograd_conv, "native": _native_conv}
    if name not in known:
        raise UserError(
            f"Conv implementation {name!r} is unknown: use 'auto' or one of {', '.join(known)}."
        )
    return known[name]


def _native_conv(
    x: jax.Array, kernel: jax.Array, strides: tuple[int, int], pool: bool
) -> jax.Array:
    y = lax.conv_general_dilated(
        x, kernel, strides, "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )
    return max_pool(y) if pool else y


def _winograd_conv(
    x: jax.Array, kernel: jax.Array, strides: tuple[int, int], pool: bool
) -> jax.Array:
    if not winograd.applies(x, kernel, strides):
        return _patches_conv(x, kernel, strides, pool)
    y = winograd.winograd_tiles(x, kernel)
    h, w = x.shape[1] - kernel.shape[0] + 1, x.shape[2] - kernel.shape[1] + 1
    if pool:
        y, h, w = _max_of_four([y[i::2, j::2] for i in (0, 1) for j in (0, 1)]), h // 2, w // 2
    return winograd.untile(y)[:, :h, :w]


def _patches_conv(
    x: jax.Array, kernel: jax.Array, strides: tuple[int, int], pool: bool
) -> jax.Array:
    if not pool:
        return _patches_matmul(x, kernel, strides)
    # One patch covers a whole pooling window. Its four outputs are four sets of channels, whose
    # kernels are the same one shifted: (kh + sh)(kw + sw) / (kh kw) times the products, for a
    # quarter of the patches, and pooling becomes the largest of four contiguous arrays.
    sh, sw = strides
    shifted = [
        jnp.pad(kernel, ((i, sh - i), (j, sw - j), (0, 0), (0, 0)))
        for i in (0, sh)
        for j in (0, sw)
    ]
    y = _patches_matmul(x, jnp.concatenate(shifted, axis=-1), (2 * sh, 2 * sw))
    return _max_of_four(jnp.split(y, 4, axis=-1))


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


def _max_of_four(x: Sequence[jax.Array]) -> jax.Array:
    return _maximum(_maximum(x[0], x[1]), _maximum(x[2], x[3]))


def _maximum(a: jax.Array, b: jax.Array) -> jax.Array:
    """`jnp.maximum`, but at a tie the first takes all of the gradient: cheaper, and as in flax.

    NaN in either operand stays NaN, so that a diverged model is seen.
    """
    return jnp.where((a >= b) | jnp.isnan(a), a, b)
