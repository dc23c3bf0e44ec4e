"""The memory plan: chunks that fit, and an estimate that holds."""

import logging
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import pytest

import pbcs_jax as pbcs
from pbcs_jax import nets
from pbcs_jax.choices import Samples
from pbcs_jax.compute import plan as plan_lib
from pbcs_jax.compute.plan import Compute
from pbcs_jax.inner.train import Inner
from pbcs_jax.nets.model import as_model
from pbcs_jax.objectives.network import Network, network_objective

CPU = jax.devices()[0]
GPU = SimpleNamespace(platform="gpu", memory_stats=lambda: {"bytes_limit": 2**31})
X = jnp.zeros((600, 28, 28, 1))


def plan(net=None, device=GPU, **options):
    model = as_model(net or nets.ConvNet(width=8))
    return plan_lib.plan(model, X, **{"rows": 100, "num_masks": 8, "device": device, **options})


def test_with_room_all_masks_go_at_once_but_on_cpu_one():
    assert plan(budget=2**40)[:2] == (8, 256)
    assert plan(budget=2**40, device=CPU)[:2] == (1, 256)


def test_chunks_shrink_until_they_fit():
    room = plan(budget=2**40).needed
    chunks = []
    for budget in (room, room // 2, room // 8):
        found = plan(budget=budget)
        assert found.needed <= budget
        chunks.append(found.mask_chunk)
    assert chunks == [8, 4, 1]
    one = plan(budget=2**40, device=CPU, rows=1)
    tight = plan(budget=one.needed // 3, rows=1)
    assert tight.mask_chunk == 1
    assert tight.outer_chunk == 64
    assert tight.needed <= one.needed // 3


def test_what_is_given_stays_and_nothing_is_below_one():
    assert plan(budget=1, compute=Compute(None, 3, 50))[:2] == (3, 50)
    assert plan(budget=1)[:2] == (1, 1)


def test_the_budget_is_half_of_the_device_or_what_the_user_says(monkeypatch):
    assert plan_lib.memory_budget(GPU) == 2**30
    monkeypatch.setenv("PBCS_MEMORY_GB", "0.5")
    assert plan_lib.memory_budget(GPU) == plan_lib.memory_budget(CPU) == 2**29


def test_the_choice_is_logged(caplog):
    with caplog.at_level(logging.INFO, logger="pbcs_jax"):
        plan(budget=2**40)
    assert "8 of 8 masks at once, outer data 256 at a time" in caplog.text


def test_random_keys_that_a_model_makes_are_counted_too():
    draw = lambda x: x * jax.random.uniform(jax.random.fold_in(jax.random.key(0), 1))  # noqa: E731
    assert plan_lib.traced_bytes(draw, X) > X.nbytes


@pytest.mark.parametrize("path_steps", [0, 1])
@pytest.mark.parametrize("net", [nets.MLP(), nets.ConvNet(width=8)])
def test_the_compiled_program_takes_no_more_than_the_estimate(net, path_steps):
    """XLA's own count of temporary memory, less what the masks themselves take."""
    y = jnp.zeros((len(X),), jnp.int32)
    evaluate = network_objective(
        as_model(net),
        X,
        y,
        Samples((100,)),
        Network(Inner(steps=3, optimizer="adam"), path_steps=path_steps),
        path=path_steps > 0,
        compute=Compute(pbcs.mask_mesh([CPU]), mask_chunk=4),
    )
    masks = jnp.zeros((4, len(X)))
    compiled = jax.jit(evaluate).lower(jax.random.key(0), masks).compile()
    found = plan(net, CPU, compute=Compute(mask_chunk=4), path_steps=path_steps).needed
    assert compiled.memory_analysis().temp_size_in_bytes <= found + 40 * masks.nbytes
