"""The outer step of every config's preset `paper` lowers for accelerators that are not here."""

import importlib
import re
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pbcs_jax as pbcs
from pbcs_jax.compute.plan import Compute
from pbcs_jax.experiments import config as config_lib
from pbcs_jax.nets import backend
from pbcs_jax.nets.model import as_model
from pbcs_jax.objectives import input_kernel
from pbcs_jax.outer import loop, masks

SHAPES = {"mnist": (28, 28, 1), "cifar10": (32, 32, 3), "breast_cancer": (30,)}
N = 400  # candidates: how many there are changes sizes in a program, and nothing else
# Cholesky's factor: NVIDIA's library, whose handle jaxlib registers; everything else is StableHLO.
FROM_LIBRARIES = {"cusolver_potrf_ffi", "cu_cholesky_update"}


def papers():
    """The presets `paper` by their configs' names; of those with the same step one serves."""
    found = {}
    for file in sorted((Path(__file__).parents[1] / "configs").glob("[!_]*.py")):
        config = importlib.import_module(f"configs.{file.stem}").get_config("paper")
        if config.get("analysis", {}).get("kind") == "gradient_mapping":
            continue  # its networks are trained once, and the outer step reads a table
        # Steps are scanned: their number changes nothing else.
        same = {"outer_steps", "steps", "learning_rate"}
        flat = config_lib.flatten(config)
        flat["experiment"] = flat["experiment"].replace(
            "analysis", "summarization"
        )  # the same step
        parts = ("experiment", "model", "selection", "inner", "kernel", "data.name")
        key = [v for k, v in flat.items() if k.startswith(parts) and k.split(".")[-1] not in same]
        found.setdefault(repr(key), (file.stem, config))
    return dict(found.values())


PAPERS = papers()


def networks(config, x, y):
    """The step by networks: `(evaluate, settings, number of candidates)`."""
    n, choice = N, pbcs.Samples(masks.capacities(N, min(config_lib.size(config), N // 2)))
    if config.experiment == "features":
        n = int(np.prod(x.shape[1:]))
        choice = pbcs.Inputs(np.arange(n, dtype=np.int32).reshape(x.shape[1:]))
    settings, given = config_lib.outer_settings(config), config.model
    model = config_lib.make_net(given.name, given.width, given.dropout, 10)
    path = settings.gradient_estimator().needs_path
    objective = pbcs.network_objective(
        *(as_model(model), x, y, choice, config_lib.network(config)),
        path=path,
        num_masks=settings.num_masks,
        compute=Compute(pbcs.mask_mesh(jax.devices()[:1]), settings.num_masks, 256),
    )
    return objective, settings, n


def kernels(config, x, y):
    """The step by kernels; the embeddings are made before, by other programs."""
    settings = config_lib.kernel_loop(config, 5000)
    estimator = settings.gradient_estimator()
    compute = Compute(pbcs.mask_mesh(jax.devices()[:1]), settings.num_masks)
    if config.experiment == "features":
        data = input_kernel.gather(x, y)
        chosen = pbcs.InputKernel(ridge=0.1, bandwidth=1.0)
        needs = estimator.needs_path
        made = pbcs.input_kernel_objective(data, chosen, x.shape[1:], None, needs, compute)
        return made, settings, data.x.shape[1]
    objective = pbcs.kernel_objective(
        *(jnp.zeros((N, 64)), y, pbcs.Kernel(ridge=0.1)),
        capacity=masks.capacities(N, min(config_lib.size(config), N // 2))[-1],
        path=estimator.needs_path,
        differences=estimator.needs_differences,
        compute=compute,
    )
    return objective, settings, N


def lowered(make, config, platform, targets):
    """The program of one outer step, as text, traced for a backend and lowered for targets."""
    x = np.zeros((N, *SHAPES[config.data.name if config.data.name in SHAPES else "mnist"]))
    y = np.arange(N) % 10
    with backend.traced_for(platform):
        evaluate, settings, n = make(config, x.astype(np.float32), y)
        state = loop.init(jax.random.key(0), n, min(config_lib.size(config), n // 2), settings)
        step = jax.jit(partial(loop._step, settings=settings))
        return jax.export.export(step, platforms=targets)(state, evaluate).mlir_module()


@pytest.mark.parametrize("name", PAPERS)
def test_the_paper_preset_has_a_program_for_accelerators(name):
    config = PAPERS[name]
    make = kernels if config.selection.objective == "kernel" else networks
    program = lowered(make, config, "gpu", ["cuda", "tpu"])
    calls = set(re.findall(r"custom_call @(\w+)", program)) - {"Sharding"}
    assert not {call for call in calls if not call.startswith("SPMD")} - FROM_LIBRARIES
    if make is networks and config.model.name != "mlp":
        assert "stablehlo.convolution" in program  # the backend's own, not that of CPUs


@pytest.mark.parametrize("name", ["mnist", "mnist_features"])
def test_so_have_the_kernels(name):
    config = importlib.import_module(f"configs.{name}").get_config("default")
    program = lowered(kernels, config, "tpu", ["tpu"])
    assert "stablehlo.cholesky" in program and "custom_call @lapack" not in program


def test_what_is_traced_for_cpus_is_noticed():
    config = importlib.import_module("configs.mnist").get_config("paper")
    assert "stablehlo.convolution" not in lowered(networks, config, "cpu", ["cpu"])
