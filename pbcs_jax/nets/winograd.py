"""Winograd's convolution: what a kernel does to 4x4 outputs at once, with few multiplications.

A polynomial product is known from its values at enough points. So a row of m = 4 outputs of a
kernel of r taps needs n = m + r - 1 products, where the definition takes m r of them:

    y = A'[(G g) * (B' d)]        d: n inputs, g: r taps, y: m outputs

(Lavin and Gray, Fast Algorithms for Convolutional Neural Networks, 2016). In two dimensions each
matrix acts along both axes, and the products at one point, summed over the channels, are a matmul.
For 3x3 that is 4 times fewer multiplications, for 5x5 6.25 times, and the tiles take 2.25 or 4
times the memory of the input, where patches take 9 or 25. The price is rounding, 3 to 8 times that
of the definition: 1e-6 to 3e-6 of the outputs' standard deviation in float32.

Every matmul here has the point as its leading axis, so that nothing is transposed between them.
"""

from functools import lru_cache

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

TILE = 4
# Symmetric points of small size, chosen by measuring the rounding; the last point is infinity.
_POINTS = {3: (0, 0.75, -0.75, 1.5, -1.5), 5: (0, 1, -1, 2, -2, 0.5, -0.5)}


def applies(x: jax.Array, kernel: jax.Array, strides: tuple[int, int]) -> bool:
    """Whether `winograd_conv` can do it, and is worth it: a few channels, and a tile of output."""
    kh, kw, channels, _ = kernel.shape
    outputs = min(x.shape[1] - kh, x.shape[2] - kw) + 1
    fits = kh == kw and kh in _POINTS and strides == (1, 1)
    return fits and channels >= 8 and outputs >= TILE


def winograd_tiles(x: jax.Array, kernel: jax.Array, window: int = 1) -> jax.Array:
    """VALID convolution with stride 1, as 4x4 tiles of output, and these as w x w windows.

    Args:
      x: `[B, H, W, C]`.
      kernel: `[r, r, C, F]`, r = 3 or 5.
      window: w, 1, or 2 for outputs that are to be pooled.

    Returns:
      `[w², 4 / w, 4 / w, B, S, T, F]`: place in a window, window in a tile, image, tile, channel.
      Tiles that pass the end of the image hold values without meaning.
    """
    r, _, channels, features = kernel.shape
    n = TILE + r - 1
    rows, columns = (-(-(size - r + 1) // TILE) for size in x.shape[1:3])
    # A matrix that is the same for all masks would make `vmap` transpose the tiles to merge the
    # masks; tied to the kernel it has a mask axis of its own whenever the kernel has one.
    tie = 0 * lax.stop_gradient(kernel[0, 0, 0, 0])
    outputs, taps, inputs = (jnp.asarray(matrix, x.dtype) + tie for matrix in _matrices(r))

    tiles = _tiles(x, n, rows, columns)
    tiles = (inputs @ tiles.reshape(n * n, -1)).reshape(n * n, -1, channels)
    points = (taps @ kernel.reshape(r * r, -1)).reshape(n * n, channels, features)
    products = tiles @ points
    half = TILE // window
    outputs = outputs.reshape(half, window, half, window, -1).transpose(1, 3, 0, 2, 4)
    y = outputs.reshape(TILE * TILE, -1) @ products.reshape(n * n, -1)
    return y.reshape(window * window, half, half, x.shape[0], rows, columns, features)


def untile(y: jax.Array) -> jax.Array:
    """`[i, j, B, S, T, F]` to `[B, S i, T j, F]`."""
    i, j, batch, rows, columns, features = y.shape
    return y.transpose(2, 3, 0, 4, 1, 5).reshape(batch, rows * i, columns * j, features)


def _tiles(x: jax.Array, n: int, rows: int, columns: int) -> jax.Array:
    """Overlapping n x n tiles of `[B, H, W, C]`, 4 apart: `[n, n, B, rows, columns, C]`.

    A tile is a block of 4 and the start of the next, so two slices an axis are enough: the gradient
    of n slices an axis would add n² arrays.
    """
    batch, h, w, channels = x.shape
    h_end, w_end = (rows + 1) * TILE - h, (columns + 1) * TILE - w
    x = jnp.pad(x, ((0, 0), (0, h_end), (0, w_end), (0, 0)))
    x = x.reshape(batch, rows + 1, TILE, columns + 1, TILE, channels).transpose(2, 4, 0, 1, 3, 5)
    more = n - TILE
    x = jnp.concatenate([x[:, :, :, :-1], x[:more, :, :, 1:]], axis=0)
    return jnp.concatenate([x[:, :, :, :, :-1], x[:, :more, :, :, 1:]], axis=1)


@lru_cache
def _matrices(r: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A' `[16, n²]`, G `[n², r²]` and B' `[n², n²]`, each acting along both axes of a tile.

    Evaluating at n points undoes interpolation, V⁻¹; convolution as the nets use it is the
    transpose of the polynomial product, which is why B' is the transpose of V⁻¹.
    """
    n = TILE + r - 1

    def values(terms: int) -> np.ndarray:
        """Values at the points of the first `terms` powers; at infinity, the last coefficient."""
        return np.vstack([np.vander(_POINTS[r], terms, increasing=True), np.eye(terms)[-1]])

    inputs = np.linalg.inv(values(n)).T
    scale = np.abs(inputs).max(axis=1, keepdims=True)
    outputs, taps, inputs = values(TILE).T, values(r) * scale, inputs / scale
    return np.kron(outputs, outputs), np.kron(taps, taps), np.kron(inputs, inputs)
