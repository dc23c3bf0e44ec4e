"""The kernel objective from embeddings alone: any pieces and any devices give the same numbers."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pbcs_jax as pbcs
from pbcs_jax.objectives import kernel_rows
from pbcs_jax.objectives import sample_kernel as kernel_lib

N, V, D, M, CAPACITY = 205, 31, 12, 5, 40
RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(N, D)).astype(np.float32), RNG.integers(0, 3, N)
X_VAL, Y_VAL = RNG.normal(size=(V, D)).astype(np.float32), np.arange(V) % 3
MASKS = (RNG.random((M, N)) < 0.1).astype(np.float32)
FORMS = {
    "candidates": {"path": True},
    "validation": {"path": True, "held_out": True},
    "losses alone": {"held_out": True},
    "guarded": {"path": True, "held_out": True, "candidate_weight": 1.0},
    "cross-entropy": {"path": True, "held_out": True, "outer_loss": "cross_entropy"},
    "differences": {"differences": True},
    "differences of validation": {"differences": True, "held_out": True},
    "regression": {"path": True, "numbers": True},
}


def evaluated(form, devices, capacity=CAPACITY, chunk=0):
    options = dict(FORMS[form])
    y, y_val = (X[:, 0], X_VAL[:, 0]) if options.pop("numbers", False) else (Y, Y_VAL)
    asked = {name: options.pop(name, False) for name in ("path", "differences")}
    held_out = (X_VAL, y_val) if options.pop("held_out", False) else None
    evaluate = pbcs.kernel_objective(
        *(X, y, pbcs.Kernel(ridge=0.1, **options)),
        capacity=capacity,
        validation=held_out,
        compute=pbcs.Compute(pbcs.mask_mesh(jax.devices()[:devices]), chunk),
        **asked,
    )
    assert isinstance(evaluate.args[0], kernel_rows.Spread)
    return jax.jit(evaluate)(jax.random.key(3), jnp.asarray(MASKS))


def close(found, expected):
    def compare(a, b):
        a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-4 * np.abs(b).max())

    jax.tree.map(compare, found, expected)


@pytest.mark.parametrize("form", FORMS)
def test_any_number_of_devices_and_any_pieces_give_the_same(form, monkeypatch):
    expected = evaluated(form, 1)
    assert expected.ok.all() and expected.losses.shape == (M,)
    wanted = expected.path_gradients if FORMS[form].get("path") else expected.differences
    assert form == "losses alone" or wanted.shape == (M, N)
    monkeypatch.setattr(kernel_rows, "PIECE", 64)
    monkeypatch.setattr(kernel_rows, "LARGEST_OUTPUTS", 64)
    for devices, chunk in ((1, 2), (2, 0), (3, 1), (8, 0)):
        close(evaluated(form, devices, chunk=chunk), expected)


@pytest.mark.parametrize("form", ["candidates", "guarded", "cross-entropy", "regression"])
def test_it_is_the_objective_of_the_gram_matrix(form, monkeypatch):
    """The dual form; differences, which have no Gram form, are compared with fitting anew."""
    monkeypatch.setattr(kernel_rows, "PIECE", 64)
    masks = MASKS * (np.cumsum(MASKS, axis=1) <= D)  # so few that both forms are exact
    monkeypatch.setitem(globals(), "MASKS", masks)
    monkeypatch.setattr(kernel_lib, "LARGEST_GRAM", 0)
    by_rows = evaluated(form, 2, capacity=D)
    monkeypatch.undo()
    monkeypatch.setitem(globals(), "MASKS", masks)
    monkeypatch.setattr(kernel_rows, "Spread", kernel_lib.Data)
    close(evaluated(form, 1, capacity=D), by_rows)


def test_what_is_stored_does_not_grow_with_candidates_times_classes():
    """Beside masks and what is returned, pieces alone: no [M, classes, n]."""
    n, classes = 100_000, 50
    x, y = jnp.ones((n, 8)), np.arange(n) % classes
    evaluate = pbcs.kernel_objective(
        *(x, y, pbcs.Kernel(ridge=0.1)),
        capacity=40,
        path=True,
        compute=pbcs.Compute(pbcs.mask_mesh(jax.devices()[:1])),
    )
    masks = jnp.zeros((M, n))
    program = jax.jit(evaluate).lower(jax.random.key(0), masks).compile()
    stored = program.memory_analysis().temp_size_in_bytes
    assert stored < 4 * M * classes * n / 3, stored
