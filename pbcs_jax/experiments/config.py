"""What a config file can say: every key and its default. `configs/` sets values, no new keys."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from ml_collections import ConfigDict

from pbcs_jax import data, nets, select
from pbcs_jax import features as features_lib
from pbcs_jax.errors import UserError
from pbcs_jax.inner.train import Inner
from pbcs_jax.objectives.input_kernel import FeatureKernel
from pbcs_jax.objectives.sample_kernel import Kernel, default_settings
from pbcs_jax.outer.settings import Settings


def summarization() -> ConfigDict:
    """The keys of the experiment 'summarization'."""
    return ConfigDict(
        {
            "experiment": "summarization",
            "seed": 0,
            "data": {
                "source": "auto",  # tfds, bundled, npz or auto
                "name": "mnist",
                "path": "",  # of an npz file
                "dir": "",  # of tensorflow-datasets; empty is its default
                "num_candidates": 1000,  # 0 is all of them
                "num_validation": 0,  # clean outer data; 0: the candidates themselves
            },
            "noise": {"kind": "none", "rate": 0.0},  # none, symmetric or pairwise
            "imbalance": {"factor": 1.0},  # largest class over smallest
            "model": {"name": "mlp", "width": 0, "dropout": 0.0},  # of the selection; 0: its own
            "coreset_size": 100,
            "methods": ("pbcs", "uniform"),
            "selection": {
                "objective": "network",  # or kernel, kernel_then_network
                "num_masks": 8,
                "outer_steps": 200,
                "estimator": "pge",  # pge, gumbel or hybrid
                "baseline": "leave_one_out",  # or none
                "temperature": 0.5,  # of gumbel
                "path_steps": 1,  # last training steps that gumbel and hybrid go through
                "path_until": 1.0,  # of hybrid: its pathwise part fades until this fraction
                "optimizer": "adam",
                "learning_rate": 0.05,
                "schedule": "cosine",
                "clip_norm": 3.0,
                "size_schedule": "constant",  # or cubic, from start_factor * K down to K
                "start_factor": 2.0,
                "final": "top_k",  # or sample
                "max_ratio": 0.0,  # of the coreset's largest class over its smallest; 0: free
                "outer_loss": "cross_entropy",  # or brier, error_rate
                "outer_batch": 0,  # outer examples a step; 0 is all of them
                "mask_chunk": 0,  # networks that a device trains side by side; 0 chooses
                "outer_chunk": 0,  # outer examples through a network at once; 0 chooses
            },
            "kernel": {  # of the objectives with a kernel; 0 and auto choose
                "features": "auto",  # raw, patches, ntk, trained_ntk, network; several: patches+ntk
                "ridge": 0.0,
                "outer_loss": "squared_error",
                "candidate_weight": 0.0,  # of the candidates' own loss beside the validation's
                "candidate_loss": "auto",  # absolute_error: wrong labels do not lead it astray
                "soften": 0.3,  # kernel_then_network starts so far from what the kernel found
                "exchanges": 0,  # at the end, of chosen samples for better ones; for clean data
                "num_masks": 0,
                "outer_steps": 0,
                "estimator": "auto",
                "learning_rate": 0.0,
                "path_until": 0.5,
            },
            "inner": {
                "steps": 100,
                "optimizer": "sgd",
                "learning_rate": 0.1,
                "momentum": 0.9,
                "weight_decay": 0.0,
                "schedule": "cosine",
                "batch_size": 0,  # 0 is the whole coreset
                "tolerance": 0.0,
                "shared_init": True,
            },
            "evaluation": {
                "model": "convnet",
                "width": 0,
                "dropout": 0.5,
                "transfer": (),  # other nets that each coreset is judged by too, as ("mlp",)
                "steps": 300,
                "epochs": 0,  # in place of steps: passes over whatever is trained on
                "optimizer": "adam",
                "learning_rate": 0.002,
                "weight_decay": 0.001,
                "batch_size": 0,
                "num_seeds": 5,
            },
            "checkpoint_every": 10,
            # Many runs in one: each point for each seed, see experiments/sweep.py.
            "sweep": {
                "points": (),  # what each changes: "noise.kind=pairwise noise.rate=0.2"
                "seeds": (),  # in place of `seed`
            },
        }
    )


def features() -> ConfigDict:
    """The keys of the experiment 'features': those of summarization, for inputs."""
    config = summarization()
    config.experiment = "features"
    config.inputs = {
        "noise": 0.0,  # standard deviation of Gaussian noise on the normalised inputs, all of them
        "patch": 1,  # of pictures: squares with this side are chosen whole
        "smooth": 0.0,  # of pictures: pixels around, this far, learn from each other; for noise
    }
    config.coreset_size = 50  # inputs, or patches
    config.methods = ("pbcs", "uniform", "f_score", "mutual_information", "mrmr", "greedy")
    config.selection.objective = "kernel"  # or network
    del config.selection.max_ratio, config.selection.outer_batch
    config.selection.outer_on = "all"  # networks are scored with all inputs, or the selected ones
    config.kernel = {  # 0 and auto choose
        "bandwidth": 0.0,
        "ridge": 0.0,
        "outer_loss": "squared_error",
        "samples": 500,  # of each outer step
        "shifts": 0.0,  # of pictures: the part of them that each step moves by a pixel
        "exchanges": 0,  # at the end, of chosen inputs for better ones; for clean inputs
        "exchange_samples": 1000,
        "num_masks": 0,
        "outer_steps": 0,
        "estimator": "auto",
        "optimizer": "auto",
        "learning_rate": 0.0,
        "path_until": 0.5,
    }
    config.evaluation.model = "mlp"
    config.evaluation.dropout = 0.0
    config.evaluation.batch_size = 100
    config.evaluation.steps = 500
    config.evaluation.num_seeds = 2
    return config


OBJECTIVES = {"summarization": select.OBJECTIVES, "features": features_lib.OBJECTIVES}
TEMPLATES = {"summarization": summarization, "features": features}


def choose_preset(preset: str | None, presets: Mapping[str, Mapping[str, Any]], config: ConfigDict):
    """`config` with one of `presets` applied: dotted keys and their values.

    Args:
      preset: what stood behind the colon of --config; None is 'default'.
      presets: name to `{"selection.outer_steps": 500, ...}`.
      config: what they change.
    """
    preset = preset or "default"
    if preset not in presets:
        raise UserError(f"preset {preset!r} is unknown: use one of {', '.join(presets)}")
    config.update_from_flattened_dict(presets[preset])
    return config


def check(config: ConfigDict) -> None:
    """Raises for what can be known to be wrong before any data are read."""
    template = TEMPLATES[config.experiment]
    allowed = flatten(template())
    given = flatten(config)
    for key in given:
        if key not in allowed:
            raise UserError(f"config key {key!r} is unknown: use one of {', '.join(allowed)}")
    for key in allowed:
        if key not in given:
            raise UserError(
                f"config key {key!r} is missing: start from config.{template.__name__}()"
            )
    if config.coreset_size <= 0:
        raise UserError(
            f"coreset_size is {config.coreset_size}: it must be at least 1 and at most the number "
            "of candidates"
        )
    if config.selection.get("max_ratio") and config.selection.max_ratio < 1:
        raise UserError(
            f"selection.max_ratio is {config.selection.max_ratio}: use 0, or at least 1"
        )
    if config.evaluation.num_seeds < 1:
        raise UserError(f"evaluation.num_seeds is {config.evaluation.num_seeds}: use at least 1")
    if config.evaluation.epochs < 0:
        raise UserError(f"evaluation.epochs is {config.evaluation.epochs}: use 0 or more")
    for name in (config.evaluation.model, *config.evaluation.transfer):
        make_net(name, 0, 0.0, 10)
    if config.checkpoint_every < 1:
        raise UserError(f"checkpoint_every is {config.checkpoint_every}: use at least 1")
    if not config.methods or len(set(config.methods)) != len(config.methods):
        raise UserError(f"methods are {tuple(config.methods)}: name at least one, and none twice")
    objectives = OBJECTIVES[config.experiment]
    if config.selection.objective not in objectives:
        raise UserError(
            f"selection.objective {config.selection.objective!r} is unknown: use one of "
            f"{', '.join(objectives)}"
        )
    outer_settings(config)
    inner_settings(config)
    evaluation_settings(config, config.coreset_size)
    if config.experiment == "features":
        if config.inputs.noise < 0:
            raise UserError(f"inputs.noise is {config.inputs.noise}: it must not be negative")
        if config.inputs.patch < 1:
            raise UserError(f"inputs.patch is {config.inputs.patch}: use at least 1")
        if config.inputs.smooth < 0:
            raise UserError(f"inputs.smooth is {config.inputs.smooth}: it must not be negative")
        feature_kernel_settings(config)
    else:
        kernel_settings(config, 1000)
    loop_settings(config, 1000)


def load_problem(config: ConfigDict) -> data.Problem:
    """The data that `config` names, corrupted as it says."""
    source = config.data
    dataset = data.load(source.source, name=source.name, path=source.path, dir=source.dir)
    return data.make_problem(
        dataset,
        seed=config.seed,
        num_candidates=source.num_candidates,
        num_validation=source.num_validation,
        noise_kind=config.noise.kind,
        noise_rate=config.noise.rate,
        imbalance_factor=config.imbalance.factor,
        input_noise=config.get("inputs", {}).get("noise", 0.0),
    )


def outer_settings(config: ConfigDict) -> Settings:
    """The outer loop's settings in `config.selection`."""
    fields = Settings.__dataclass_fields__
    return Settings(**{k: v for k, v in config.selection.items() if k in fields})


def kernel_settings(config: ConfigDict, n: int) -> Kernel:
    """The kernel's settings in `config.kernel`, for n candidates."""
    own, settings = _own_and_loop(config, Kernel, default_settings(n))
    return Kernel(**own, settings=settings)


def feature_kernel_settings(config: ConfigDict) -> tuple[FeatureKernel, Settings]:
    """The same of the experiment 'features'."""
    own, settings = _own_and_loop(config, FeatureKernel, features_lib.KERNEL_SETTINGS)
    return FeatureKernel(**own), settings


def _own_and_loop(
    config: ConfigDict, kind: Any, default: Settings
) -> tuple[dict[str, Any], Settings]:
    """What of `config.kernel` is a field of `kind`, and `default` with all the rest that is set."""
    given = dict(config.kernel)
    own = {f.name for f in dataclasses.fields(kind)}
    loop = {k: v for k, v in given.items() if k not in own and v not in (0, "auto")}
    return {k: v for k, v in given.items() if k in own}, dataclasses.replace(default, **loop)


def loop_settings(config: ConfigDict, n: int) -> Settings:
    """The settings of the outer loop that is checkpointed: the network's, or the kernel's alone."""
    if config.selection.objective == "kernel":
        if config.experiment == "features":
            return feature_kernel_settings(config)[1]
        settings = kernel_settings(config, n).settings
        assert settings is not None
        return settings
    return outer_settings(config)


def inner_settings(config: ConfigDict) -> Inner:
    """The inner loop's settings in `config.inner`."""
    return Inner(**config.inner)


def evaluation_settings(config: ConfigDict, size: int) -> Inner:
    """How the judges of a coreset of `size` are trained: from fresh weights, to the last step."""
    fields = Inner.__dataclass_fields__
    given = {k: v for k, v in config.evaluation.items() if k in fields}
    if config.evaluation.epochs:
        given["steps"] = config.evaluation.epochs * -(-size // (given["batch_size"] or size))
    return Inner(**given, shared_init=False)


def judge_nets(config: ConfigDict, num_classes: int) -> dict[str, Any]:
    """The nets of the evaluation by name: its own first, then those of the transfer."""
    given = config.evaluation
    nets_by_name = {}
    for name in (given.model, *given.transfer):
        # The width and dropout of the config are meant for its own net.
        width, dropout = (given.width, given.dropout) if name == given.model else (0, 0.0)
        nets_by_name[name] = make_net(name, width, dropout, num_classes)
    return nets_by_name


def make_net(name: str, width: int, dropout: float, num_classes: int):
    """A net by name; a width or dropout of 0 leaves the net's own."""
    options: dict[str, Any] = {}
    if width:
        options |= {"hidden": (width, width)} if name == "mlp" else {"width": width}
    if dropout:
        options["dropout"] = dropout
    return nets.create(name, num_classes, **options)


def flatten(config: Mapping[str, Any] | ConfigDict, prefix: str = "") -> dict[str, Any]:
    """`{"selection.num_masks": 8, ...}`, in order."""
    flat: dict[str, Any] = {}
    for key, value in config.items():
        if isinstance(value, Mapping | ConfigDict):
            flat |= flatten(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = list(value) if isinstance(value, tuple) else value
    return flat
