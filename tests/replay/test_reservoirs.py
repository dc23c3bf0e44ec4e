"""Reservoirs against what their authors write, sample by sample."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pbcs_jax.errors import UserError
from pbcs_jax.replay import ClassBalancedReservoir, Reservoir, load, save


def stream(memory, chunks, key=0):
    """The states after each of the chunks `(x, y)`."""
    state, add = memory.init(*chunks[0]), jax.jit(memory.add)
    for number, chunk in enumerate(chunks):
        state = add(jax.random.fold_in(jax.random.key(key), number), state, *chunk)
        yield state


def test_every_sample_of_the_stream_is_stored_as_often():
    x = jnp.arange(40)
    memory = Reservoir(8)

    def stored(key):
        state = memory.init(x[:10], x[:10])
        for start, own in zip(range(0, 40, 10), jax.random.split(key, 4), strict=True):
            chunk = x[start : start + 10]
            state = memory.add(own, state, chunk, chunk)
        return jnp.zeros(40).at[state.stored.x].add(1.0)

    counts = jax.jit(jax.vmap(stored))(jax.random.split(jax.random.key(0), 4000))
    assert np.all(np.asarray(counts) <= 1) and np.all(counts.sum(1) == 8)  # none twice
    # 800 of 4,000 each; the standard deviation is 25.
    np.testing.assert_allclose(counts.sum(0), 800, atol=125)


def test_a_memory_keeps_its_size_over_ten_thousand_chunks():
    y = jnp.arange(60).reshape(20, 3) % 5

    @jax.jit
    def all_of(key):
        def one(states, i):
            keys, labels = jax.random.split(jax.random.fold_in(key, i)), y[i % 20]
            x = jnp.stack([i, labels[0]] * 3).reshape(3, 2).astype(jnp.float32)
            pairs = zip(memories, keys, states, strict=True)
            states = tuple(m.add(k, state, x, labels) for m, k, state in pairs)
            stored = [m.rows(s).weights > 0 for m, s in zip(memories, states, strict=True)]
            return states, jnp.sum(jnp.stack(stored), axis=1)

        start = tuple(memory.init(jnp.zeros((3, 2)), y[0]) for memory in memories)
        return jax.lax.scan(one, start, jnp.arange(10_000))

    memories = Reservoir(7), ClassBalancedReservoir(7, 5)
    states, sizes = all_of(jax.random.key(0))
    assert np.all(sizes[2:] == 7) and int(states[0].seen) == 30_000
    assert states[0].stored.x.shape == (7, 2)
    assert np.sort(np.asarray(states[1].counts)).tolist() == [1, 1, 1, 2, 2]
    assert int(states[1].seen.sum()) == 30_000


@pytest.mark.parametrize("seed", range(4))
def test_cbrs_does_what_its_authors_write(seed):
    rng = np.random.default_rng(seed)
    labels = rng.choice(3, 60, p=[0.8, 0.15, 0.05])
    memory = ClassBalancedReservoir(9, 3)
    chunks = [(jnp.arange(i, i + 1), jnp.asarray(labels[i : i + 1])) for i in range(60)]
    before, full, seen = None, set(), np.zeros(3, int)
    changed = {"own": 0, "largest": 0}
    for i, state in enumerate(stream(memory, chunks)):
        now = np.asarray(state.stored.x)[np.asarray(state.stored.weights) > 0]
        seen[labels[i]] += 1
        assert len(set(now.tolist())) == len(now) == min(i + 1, 9)
        counts = np.bincount(labels[now], minlength=3)
        np.testing.assert_array_equal(state.counts, counts)
        for c in range(3):  # the table of places is that of the rows
            places = np.asarray(state.places[c, : counts[c]])
            assert np.all(np.asarray(state.stored.y)[places] == c)
        if i >= 9:
            counts_before = np.bincount(labels[before], minlength=3)
            full |= set(np.flatnonzero(counts_before == counts_before.max()).tolist())
            gone = sorted(set(before.tolist()) - set(now.tolist()))
            if labels[i] not in full:
                assert i in now and labels[gone[0]] == counts_before.argmax()
                changed["largest"] += 1
            else:
                assert all(labels[g] == labels[i] for g in gone)
                changed["own"] += len(gone)
        before = now
    assert changed["own"] > 0 and changed["largest"] > 0
    np.testing.assert_array_equal(state.seen, seen)


def test_within_a_class_cbrs_is_a_reservoir():
    labels = jnp.asarray(np.random.default_rng(0).permutation([0] * 30 + [1] * 10))
    x, memory = jnp.arange(40), ClassBalancedReservoir(8, 2)

    def stored(key):
        state = memory.add(key, memory.init(x, labels), x, labels)
        return jnp.zeros(40).at[state.stored.x].add(1.0)

    counts = jax.jit(jax.vmap(stored))(jax.random.split(jax.random.key(1), 4000)).sum(0)
    for c, members in ((0, 30), (1, 10)):
        own = np.asarray(counts)[np.asarray(labels) == c]
        np.testing.assert_allclose(own, 4 * 4000 / members, rtol=0.2)


def test_the_same_seed_gives_the_same_bits_and_so_does_a_stored_state(tmp_path):
    rng = np.random.default_rng(0)
    chunks = [(rng.normal(size=(6, 3)), rng.integers(0, 2, 6)) for _ in range(8)]
    memory = ClassBalancedReservoir(5, 2)
    (*_, half), (*_, whole) = stream(memory, chunks[:4]), stream(memory, chunks)
    save(tmp_path / "memory.npz", half)
    with np.load(tmp_path / "memory.npz", allow_pickle=False) as file:
        assert len(file.files) == 7
    state = load(tmp_path / "memory.npz", memory.init(*chunks[0]))
    for number in range(4, 8):
        state = memory.add(jax.random.fold_in(jax.random.key(0), number), state, *chunks[number])
    for a, b in zip(jax.tree.leaves(state), jax.tree.leaves(whole), strict=True):
        np.testing.assert_array_equal(a, b)
    assert not list(tmp_path.glob("*.tmp"))


def test_a_file_of_another_memory_is_refused(tmp_path):
    x = jnp.zeros((2, 3))
    save(tmp_path / "one.npz", Reservoir(4).init(x, x[:, 0]))
    with pytest.raises(UserError, match="is of another memory"):
        load(tmp_path / "one.npz", Reservoir(5).init(x, x[:, 0]))
    (tmp_path / "torn.npz").write_bytes((tmp_path / "one.npz").read_bytes()[:200])
    with pytest.raises(UserError, match="cannot be read"):
        load(tmp_path / "torn.npz", Reservoir(4).init(x, x[:, 0]))


def test_an_empty_memory_gives_weights_of_0():
    memory = Reservoir(4)
    state = memory.init(jnp.zeros((2, 3)), jnp.zeros(2, int))
    assert memory.sample(jax.random.key(0), state, 6).weights.tolist() == [0] * 6
    state = memory.add(jax.random.key(1), state, jnp.ones((2, 3)), jnp.ones(2, int))
    drawn = memory.sample(jax.random.key(0), state, 6)
    assert drawn.weights.tolist() == [1] * 6 and drawn.y.tolist() == [1] * 6


def test_labels_may_come_with_logits():
    memory = Reservoir(4)
    y = {"label": jnp.arange(3), "logits": jnp.ones((3, 10))}
    state = memory.add(jax.random.key(0), memory.init(jnp.zeros((3, 2)), y), jnp.zeros((3, 2)), y)
    drawn = memory.sample(jax.random.key(0), state, 5)
    assert drawn.y["logits"].shape == (5, 10) and drawn.y["label"].shape == (5,)


@pytest.mark.parametrize("size", [0, 1.5])
def test_a_bad_size_is_refused(size):
    with pytest.raises(UserError, match=f"size is {size}: use a whole number of at least 1"):
        Reservoir(size)
