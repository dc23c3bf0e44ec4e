"""Merge-reduce and the memory of tasks against plain Python."""

import doctest
import importlib
import pkgutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pbcs_jax.replay
from pbcs_jax.errors import UserError
from pbcs_jax.replay import MergeReduce, TaskMemory


def reference(slots, chunks, reduce):
    """Merge-reduce with lists: `[(weight, rows)]`."""
    kept = []
    for chunk in chunks:
        kept.append((1, reduce(chunk, [1] * len(chunk))))
        if len(kept) > slots:
            equal = [i for i in range(slots) if kept[i][0] == kept[i + 1][0]]
            i = min(equal, key=lambda i: (kept[i][0], i)) if equal else slots - 2
            (w, a), (v, b) = kept[i : i + 2]
            kept[i : i + 2] = [(w + v, reduce(a + b, [w] * len(a) + [v] * len(b)))]
    return kept


@pytest.mark.parametrize("slots", [2, 3, 5])
@pytest.mark.parametrize("compiled", [True, False])
def test_slots_are_those_of_lists(slots, compiled):
    def by_weight_and_value(rows, weights):
        scores = [w * (v * 7 % 11) for v, w in zip(rows, weights, strict=True)]
        order = sorted(range(len(rows)), key=lambda i: (-scores[i], i))
        return [rows[i] for i in order[:2]]

    def in_jax(key, x, y, weights, size):
        return jnp.argsort(-(weights * (x * 7 % 11)), stable=True)[:size]

    def in_numpy(key, x, y, weights, size):
        return np.argsort(-np.asarray(weights * (x * 7 % 11)), kind="stable")[:size]

    memory = MergeReduce(slots, 2, in_jax if compiled else in_numpy)
    add = jax.jit(memory.add) if compiled else memory.add
    chunks = np.random.default_rng(0).permutation(80).reshape(20, 4)
    state = memory.init(jnp.asarray(chunks[0]), jnp.asarray(chunks[0]))
    for number, chunk in enumerate(chunks, 1):
        state = add(jax.random.key(0), state, jnp.asarray(chunk), jnp.asarray(-chunk))
        kept = reference(slots, chunks[:number].tolist(), by_weight_and_value)
        rows = memory.rows(state)
        filled = np.asarray(rows.weights) > 0
        assert np.asarray(rows.x)[filled].tolist() == [v for _, own in kept for v in own]
        np.testing.assert_array_equal(rows.y, -rows.x)
        np.testing.assert_allclose(state.weights[: len(kept)], [w for w, _ in kept])
        assert float(rows.weights.sum()) == number  # every chunk counts once


def test_a_chunk_smaller_than_a_slot_is_refused():
    memory = MergeReduce(2, 5, lambda key, x, y, weights, size: jnp.arange(size))
    state = memory.init(jnp.zeros(9), jnp.zeros(9))
    with pytest.raises(UserError, match="a chunk has 4 samples: give at least 5"):
        memory.add(jax.random.key(0), state, jnp.zeros(4), jnp.zeros(4))


@pytest.mark.parametrize(("size", "sizes"), [(10, [9, 9, 9, 9]), (11, [11, 2, 1, 5]), (4, [4] * 4)])
def test_tasks_are_cut_to_the_first_of_their_order(size, sizes):
    memory = TaskMemory(size, 4)
    state, tasks, start = memory.init(jnp.zeros(3), jnp.zeros(3)), [], 0
    for t, count in enumerate(sizes, 1):
        own = jnp.arange(start, start + count, dtype=jnp.float32)
        tasks, start = [*tasks, own.tolist()], start + count
        state = jax.jit(memory.add)(None, state, own, -own)
        x, y, weights = memory.rows(state)
        wanted = [v for task in tasks for v in task[: size // t]]
        filled = np.asarray(weights) > 0
        assert np.asarray(x)[filled].tolist() == wanted and np.all(x[filled] == -y[filled])
        in_memory = sum(len(task) > 0 for task in tasks)
        assert float(weights.sum()) == pytest.approx(in_memory)  # a mean of each


def test_more_tasks_than_samples_are_refused():
    with pytest.raises(UserError, match="size is 3: give at least 4"):
        TaskMemory(3, 4)


@pytest.mark.parametrize("name", [m.name for m in pkgutil.iter_modules(pbcs_jax.replay.__path__)])
def test_its_examples_are_right(name):
    module = importlib.import_module(f"pbcs_jax.replay.{name}")
    assert doctest.testmod(module).failed == 0
