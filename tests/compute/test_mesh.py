"""Masks over devices: the same values as on one, in one exchange."""

import os
import re
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pbcs_jax as pbcs
import pbcs_jax.nets
from pbcs_jax.compute import mesh as mesh_lib
from pbcs_jax.outer import loop


def function(shared, own):
    return {"loss": jnp.sum(own * shared), "ok": own[0] > 0, "row": own * 2, "count": jnp.int32(7)}


@pytest.mark.parametrize("devices", [1, 3, 8])
@pytest.mark.parametrize("chunk", [1, 2])
def test_any_number_of_masks_on_any_number_of_devices(devices, chunk):
    shared, masks = jnp.arange(4.0), jax.random.normal(jax.random.key(0), (10, 4))
    mapped = mesh_lib.map_masks(function, mesh_lib.mask_mesh(jax.devices()[:devices]), chunk)
    found, expected = jax.jit(mapped)(shared, masks), jax.vmap(function, (None, 0))(shared, masks)
    assert jax.tree.map(lambda a: (a.shape, a.dtype), found) == jax.tree.map(
        lambda a: (a.shape, a.dtype), expected
    )
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6), found, expected)


@pytest.mark.parametrize(("masks", "devices"), [(5, 2), (5, 8), (8, 4)])
def test_no_mask_is_worked_on_twice(masks, devices):
    """Five masks on two devices are three and two: the idle core is left to the busy one."""
    seen = []

    def watched(shared, own):
        jax.debug.callback(lambda value: seen.append(float(value)), own[0])
        return function(shared, own)

    mapped = mesh_lib.map_masks(watched, mesh_lib.mask_mesh(jax.devices()[:devices]), 1)
    own = jnp.arange(4.0 * masks).reshape(masks, 4)
    jax.block_until_ready(jax.jit(mapped)(jnp.ones(4), own))
    jax.effects_barrier()
    assert sorted(seen) == own[:, 0].tolist()


def exchanges(program):
    """The kind and shape of every exchange between devices in a compiled program."""
    kinds = "all-gather|all-reduce|all-to-all|reduce-scatter|collective-[a-z]+"
    found = re.findall(rf"= (\S+|\([^)]*\)) ({kinds})(?:-start)?\(", program)
    return [(kind, shape.split("{")[0]) for shape, kind in found]


@pytest.mark.parametrize("estimator", ["pge", "hybrid"])
@pytest.mark.parametrize("name", ["network", "kernel", "kernel by rows"])
def test_what_processes_exchange_in_an_outer_step(name, estimator, monkeypatch):
    """More exchanges, in no order, and two processes can wait in different ones for ever."""
    monkeypatch.setattr(mesh_lib.processes, "span", lambda mesh: True)
    monkeypatch.setattr(mesh_lib, "LARGEST_GATHERED", 100)
    n, size, num_masks = 200, 20, 4
    d, capacity = 50, 40 if name != "kernel by rows" else 56
    x = np.random.default_rng(0).normal(size=(n, d)).astype(np.float32)
    y, is_hybrid = np.arange(n) % 3, estimator == "hybrid"
    compute = pbcs.Compute(pbcs.mask_mesh(jax.devices()[:2]))
    if name.startswith("kernel"):
        kernel = pbcs.Kernel(ridge=0.1)
        evaluate = pbcs.kernel_objective(
            *(x, y, kernel), capacity=capacity, path=is_hybrid, compute=compute
        )
    else:
        evaluate = pbcs.network_objective(
            *(pbcs.nets.as_model(pbcs.nets.MLP(3, (4,))), x, y, pbcs.Samples((40,))),
            pbcs.Network(pbcs.Inner(steps=2)),
            path=is_hybrid,
            num_masks=num_masks,
            compute=compute,
        )
    settings = pbcs.Settings(num_masks=num_masks, estimator=estimator)
    state = loop.init(jax.random.key(0), n, size, settings)
    state, placed, everywhere = loop._place(state, evaluate)
    program = loop._compiled_step.lower(state, placed, settings, everywhere).compile().as_text()
    losses, mean = ("all-gather", f"f32[{num_masks},3]"), ("all-reduce", f"f32[{n}]")
    expected = [losses, *[mean] * is_hybrid]
    if name == "kernel by rows":  # the chosen rows, the sums over all rows, and path gradients
        sums = 3 * num_masks + is_hybrid * num_masks * 3 * d
        expected = [("all-reduce", f"f32[{num_masks * capacity * (d + 3)}]")]
        expected += [("all-reduce", f"f32[{sums}]")]
        expected += [("all-gather", f"f32[{num_masks},{n}]")] * is_hybrid
    assert exchanges(program) == expected


def test_devices_meet_once():
    """Several exchanges at once can take all threads that CPU devices share: a deadlock."""
    mapped = jax.jit(mesh_lib.map_masks(function, mesh_lib.mask_mesh(), 1))
    program = mapped.lower(jnp.arange(4.0), jnp.ones((8, 4))).compile().as_text()
    meetings = re.findall(r"= \S+ (?:all|reduce|collective)-[a-z-]+\(", program)
    assert len(meetings) == 1


def test_between_processes_gradients_are_averaged_before_they_are_exchanged(monkeypatch):
    """The mean over masks is one exchange of [n] numbers, and no gathering of [M, n]."""
    n = 5000
    monkeypatch.setattr(mesh_lib.processes, "span", lambda mesh: True)
    mapped = mesh_lib.map_masks(lambda shared, own: (own[0], own * shared), mesh_lib.mask_mesh(), 1)

    @jax.jit
    def mean(masks):
        losses, gradients = mapped(2.0, masks)
        return losses, jnp.sum(jnp.where(losses[:, None] > 0, gradients, 0), axis=0) / 8

    masks = jax.random.normal(jax.random.key(0), (8, n))
    program = mean.lower(masks).compile().as_text()
    meetings = re.findall(r"= (\S+) (?:all|reduce|collective)-([a-z-]+)\(", program)
    assert sorted(kind for _, kind in meetings) == ["gather", "reduce"], meetings
    assert dict((kind, shape) for shape, kind in meetings)["reduce"].startswith(f"f32[{n}]")
    expected = jnp.sum(jnp.where(masks[:, :1] > 0, 2 * masks, 0), axis=0) / 8
    np.testing.assert_allclose(mean(masks)[1], expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("flags", "expected"), [("", "2 4"), ("3", "3 None")])
def test_every_core_becomes_a_device_unless_the_user_says_otherwise(flags, expected):
    code = (
        "import os; os.sched_getaffinity = lambda _: {0, 1}; import pbcs_jax as pbcs, jax; "
        "pbcs.use_all_cores(); print(jax.device_count(), os.environ.get('NPROC'))"
    )
    environment = {k: v for k, v in os.environ.items() if k not in ("XLA_FLAGS", "NPROC")}
    if flags:
        environment["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={flags}"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment
    )
    assert done.stdout.strip() == expected, done.stderr


@pytest.mark.parametrize("chunk", [1, 2])
def test_what_a_mask_is_put_through_is_traced_once(chunk):
    """Tracing a network takes longer than all else that a warm start waits for."""
    calls = []

    def counted(shared, own):
        calls.append(own)
        return function(shared, own)

    mapped = mesh_lib.map_masks(counted, mesh_lib.mask_mesh(), chunk)
    jax.make_jaxpr(mapped)(jnp.ones(3), jnp.arange(15.0).reshape(5, 3))
    assert len(calls) == 1
