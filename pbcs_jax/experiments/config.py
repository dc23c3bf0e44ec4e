"""What a config file can set: every key and its default. `configs/` sets values, no new keys.

The keys of a section are the fields of the record that it fills, whose docstring explains them:
`selection` those of `Settings` and `Network`, `inner` those of `Inner`, `kernel` those of `Kernel`
or `InputKernel`.
"""

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

import jax
from ml_collections import ConfigDict

from pbcs_jax import data, nets
from pbcs_jax.compute.plan import Compute
from pbcs_jax.errors import UserError, check_known, check_number
from pbcs_jax.experiments.values import check_values
from pbcs_jax.inner.train import Inner
from pbcs_jax.objectives import InputKernel, Kernel, Network
from pbcs_jax.outer.settings import Settings

OBJECTIVES = {
    "summarization": ("network", "kernel", "kernel_then_network", "auto"),
    "features": ("network", "kernel"),
    "continual": ("kernel",),
    "streaming": ("kernel",),
    "analysis": ("network", "kernel"),
}
ANALYSES = ("selection", "evolution", "time", "gradient_mapping")
FEWEST_STEPS = 20
"""With fewer outer steps a run shows that the program works, and nothing else."""
RENAMED = {
    "summarization": {"kernel.features": "kernel.embeddings"},
    "features": {"coreset_size": "num_inputs", "data.num_candidates": "data.num_samples"},
    "continual": {},
    "streaming": {},
    "analysis": {},
}
"""Keys that misled, by experiment: an old one ends in an error that names the new one."""


def _fields(record: type, *left_out: str) -> dict[str, Any]:
    return {f.name: f.default for f in dataclasses.fields(record) if f.name not in left_out}


def _common() -> dict[str, Any]:
    """The keys that all experiments have."""
    return {
        "seed": 0,
        "data": {
            "source": "auto",  # tfds, bundled, npz, npy or auto
            "name": "mnist",
            "path": "",  # of an npz file, or of a folder of npy files
            "dir": "",  # of tensorflow-datasets; empty is its default
            "num_validation": 0,  # clean outer data; 0: the training samples themselves
        },
        "noise": {"kind": "none", "rate": 0.0},  # none, symmetric or pairwise
        "imbalance": {"factor": 1.0},  # largest class over smallest
        "model": {"name": "mlp", "width": 0, "dropout": 0.0},  # of the selection; 0: its own
        "methods": ("pbcs", "uniform"),
        "selection": {
            "objective": "network",  # or kernel, or for samples kernel_then_network
            **_fields(Settings, "max_ratio", "smooth"),
            **_fields(Network, "inner", "loss_fn", "outer_on", "scale"),
            "mask_chunk": 0,  # networks that a device trains side by side; 0 chooses
            "outer_chunk": 0,  # outer examples through a network at once; 0 chooses
        },
        # Of the outer loop by the kernel; 0 and auto choose. Its own settings are added below.
        "kernel": {
            "num_masks": 0,
            "outer_steps": 0,
            "estimator": "auto",
            "optimizer": "auto",
            "learning_rate": 0.0,
            "path_until": 0.0,
        },
        "inner": _fields(Inner),
        "evaluation": {
            "model": "convnet",
            "width": 0,
            "dropout": 0.5,
            "transfer": (),  # other nets that judge each selection too, as ("mlp",)
            "steps": 300,
            "epochs": 0,  # in place of steps: passes over whatever is trained on
            "optimizer": "adam",
            "learning_rate": 0.002,
            "weight_decay": 0.001,
            "schedule": "cosine",
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


def summarization() -> ConfigDict:
    """The keys of the experiment 'summarization', which chooses samples."""
    config = ConfigDict({"experiment": "summarization", **_common()})
    config.coreset_size = 100  # 0: objective auto looks for the smallest that is good enough
    config.time_budget = 60.0  # seconds of objective auto, without compiling
    config.tolerance = 0.01  # of that search: so much below everything is good enough
    config.data.num_candidates = 1000  # 0 is all of them
    config.selection.max_ratio = 0.0  # of the coreset's largest class over its smallest; 0: free
    config.kernel.update(_fields(Kernel, "loss_fn", "scale"))
    config.kernel.soften = 0.3  # kernel_then_network starts so far from what the kernel found
    return config


def features() -> ConfigDict:
    """The keys of the experiment 'features', which chooses inputs."""
    config = ConfigDict({"experiment": "features", **_common()})
    config.num_inputs = 50  # or patches
    config.data.num_samples = 1000  # 0 is all of them
    config.inputs = {
        "noise": 0.0,  # standard deviation of Gaussian noise on the normalised inputs, all of them
        "patch": 1,  # of pictures: squares with this side are chosen whole
        "smooth": 0.0,  # of pictures: pixels around, this far, learn from each other; for noise
    }
    config.methods = ("pbcs", "uniform", "f_score", "mutual_information", "mrmr", "greedy")
    config.selection.objective = "kernel"
    config.selection.outer_on = "all"  # networks are scored with all inputs, or the selected ones
    config.kernel.update(_fields(InputKernel, "loss_fn", "scale"))
    config.evaluation.update(model="mlp", dropout=0.0, batch_size=100, steps=500, num_seeds=2)
    return config


def continual() -> ConfigDict:
    """The keys of the experiment 'continual', in which a memory keeps what is left of each task."""
    config = ConfigDict({"experiment": "continual", **_common()})
    del config.inner
    config.selection = {"objective": "kernel"}
    config.kernel.update(_fields(Kernel, "loss_fn", "scale"), embeddings="relu_ntk")
    # For the many that are kept of a task: the candidates' own loss counts more than that of so few
    # held-out samples, and the path gradient covers all candidates at once.
    config.kernel.update(
        ridge=10.0,
        candidate_weight=3.0,
        estimator="hybrid",
        num_masks=4,
        outer_steps=50,
        learning_rate=0.1,
    )
    config.memory_size = 100
    config.continual = {
        "kind": "permuted",  # or split: each task has some of the classes
        "tasks": 10,
        "task_size": 1000,  # candidates of a task; 0 is all of its classes
        "imbalance": "thinned",  # or refilled, see `data.tasks.Corruption`
        "train_on": "task",  # or selected: a network sees only what its method keeps of a task
        "keep": 0.7,  # the share of a task that is kept
        "order_ridge": 0.1,  # of the kernel, for the few that a memory takes of what is kept
        "betas": (0.01,),  # weights of the memory's loss; held-out data choose
        "der_alpha": 0.1,  # weight of the stored logits of der++
        "side_by_side": 8,  # networks that are trained at once
    }
    config.data.num_validation = 100
    config.methods = ("pbcs", "uniform", "kcenter", "hardest", "herding", "greedy")
    config.evaluation.update(
        model="mlp",
        dropout=0.2,
        epochs=400,
        batch_size=256,
        learning_rate=5e-4,
        weight_decay=0.0,
        schedule="constant",
    )
    del config.evaluation.transfer
    return config


def streaming() -> ConfigDict:
    """The keys of the experiment 'streaming': tasks one after another, in small chunks."""
    config = continual()
    config.experiment = "streaming"
    config.stream = {
        "chunk": 125,
        "slots": 10,  # of merge-reduce
    }
    config.evaluation.epochs = 40  # of each chunk
    config.methods = ("pbcs", "reservoir", "cbrs", "greedy", "herding")
    return config


def analysis() -> ConfigDict:
    """The keys of the experiment 'analysis', which looks at how samples are selected."""
    config = summarization()
    config.experiment = "analysis"
    config.methods = ("pbcs", "pbcs_kernel", "greedy", "uniform")
    config.analysis = {
        "kind": "selection",  # one of ANALYSES
        "repeats": 64,  # of gradient_mapping: runs that the mean is over
        "step_size": 0.3,  # of gradient_mapping: learning rate times the smoothness of the loss
    }
    return config


TEMPLATES = {
    "summarization": summarization,
    "features": features,
    "continual": continual,
    "streaming": streaming,
    "analysis": analysis,
}


def choose_preset(preset: str | None, presets: Mapping[str, Mapping[str, Any]], config: ConfigDict):
    """`config` with one of `presets` applied: dotted keys and their values.

    Args:
      preset: what stood behind the colon of --config; None is 'default'.
      presets: name to `{"selection.outer_steps": 500, ...}`.
      config: what they change.
    """
    preset = preset or "default"
    check_known("preset", preset, presets)
    config.update_from_flattened_dict(presets[preset])
    return config


def unknown_key(key: str, config: Mapping[str, Any] | ConfigDict) -> UserError:
    """The error for a key that the experiment of `config` does not have."""
    experiment = config["experiment"]
    if key in RENAMED[experiment]:
        return UserError(f"config key {key!r} was renamed: use {RENAMED[experiment][key]!r}")
    allowed = ", ".join(flatten(TEMPLATES[experiment]()))
    return UserError(f"config key is {key!r}: use one of {allowed}")


def check(config: ConfigDict) -> None:
    """Raises for what can be known to be wrong before any data are read."""
    check_known("experiment", config.get("experiment"), TEMPLATES)
    template = TEMPLATES[config.experiment]
    allowed, given = flatten(template()), flatten(config)
    for key in given:
        if key not in allowed:
            raise unknown_key(key, config)
    for key in allowed:
        if key not in given:
            raise UserError(
                f"config key {key!r} is missing: start from config.{template.__name__}()"
            )
    check_values(given, allowed)
    if config.selection.get("max_ratio"):  # 0 leaves the classes alone
        check_number("selection.max_ratio", config.selection.max_ratio, least=1)
    for name in (config.evaluation.model, *config.evaluation.get("transfer", ())):
        make_net(name, 0, 0.0, 10)
    if not config.methods or len(set(config.methods)) != len(config.methods):
        raise UserError(f"methods are {tuple(config.methods)}: name at least one, and none twice")
    check_known("selection.objective", config.selection.objective, OBJECTIVES[config.experiment])
    if config.selection.objective == "kernel_then_network" and config.kernel.exchanges:
        raise UserError(
            f"kernel.exchanges is {config.kernel.exchanges}: exchanges end a selection by the "
            "kernel, and a network's search would start from the probabilities before them; use 0"
        )
    if config.experiment == "analysis":
        check_known("analysis.kind", config.analysis.kind, ANALYSES)
    if size(config) == 0 and (config.selection.objective, config.methods[0]) != ("auto", "pbcs"):
        raise UserError(
            f"{size_key(config)} is 0, which has the size looked for: it needs "
            "selection.objective=auto, and 'pbcs' as the first of methods; or give K"
        )
    outer_settings(config)
    network(config)
    evaluation_settings(config, size(config))
    kernel_loop(config, 1000)
    loop_settings(config, 1000)


def load_problem(config: ConfigDict) -> data.Problem:
    """The data that `config` names, corrupted as it asks; those of tasks are, by `data.tasks`."""
    source = config.data
    noise, factor = config.noise, config.imbalance.factor
    if "continual" in config:
        noise, factor = ConfigDict({"kind": "none", "rate": 0.0}), 1.0
    if source.source == "npy" and config.experiment != "summarization":
        raise UserError(
            f"data.source is 'npy', for the experiment 'summarization', and this is "
            f"{config.experiment!r}: use 'npz'"
        )
    dataset = data.load(source.source, name=source.name, path=source.path, dir=source.dir)
    problem = data.make_problem(
        dataset,
        seed=config.seed,
        num_candidates=source.get("num_candidates", source.get("num_samples", 0)),
        num_validation=source.num_validation,
        noise_kind=noise.kind,
        noise_rate=noise.rate,
        imbalance_factor=factor,
        input_noise=config.get("inputs", {}).get("noise", 0.0),
    )
    return problem._replace(fingerprint=data.fingerprint(dataset))


def size_key(config: ConfigDict) -> str:
    """The key of K."""
    names = {"features": "num_inputs", "continual": "memory_size", "streaming": "memory_size"}
    return names.get(config.experiment, "coreset_size")


def size(config: ConfigDict) -> int:
    """K; 0 if it is to be found."""
    return config[size_key(config)]


def keys(config: ConfigDict) -> jax.Array:
    """Those of the selection, of the baselines and of the judges."""
    return jax.random.split(jax.random.key(config.seed), 3)


def _own(section: ConfigDict, record: type) -> dict[str, Any]:
    """What of a section are fields of a record."""
    return {k: v for k, v in section.items() if k in _fields(record)}


def outer_settings(config: ConfigDict) -> Settings:
    """The outer loop's settings in `config.selection`."""
    return Settings(**_own(config.selection, Settings))


def network(config: ConfigDict) -> Network:
    """The objective 'network' of `config.selection` and `config.inner`."""
    return Network(Inner(**config.get("inner", {})), **_own(config.selection, Network), scale=False)


def kernel(config: ConfigDict) -> Any:
    """The objective 'kernel' of `config.kernel`."""
    record = InputKernel if config.experiment == "features" else Kernel
    return record(**_own(config.kernel, record), scale=False)


def kernel_loop(config: ConfigDict, n: int) -> Settings:
    """The outer loop's settings by the kernel over n candidates: what is set, else its own."""
    given = _own(config.kernel, Settings)
    given = {k: v for k, v in given.items() if v not in (0, "auto")}
    own = kernel(config).loop_settings(n, size(config), given.get("estimator"))
    return dataclasses.replace(own, **given)


def loop_settings(config: ConfigDict, n: int) -> Settings:
    """The settings of the outer loop that is checkpointed: the network's, or the kernel's alone."""
    is_kernel = config.selection.objective == "kernel"
    return kernel_loop(config, n) if is_kernel else outer_settings(config)


def banner(configs: Iterable[ConfigDict]) -> str:
    """What warns of runs with too few outer steps, as in the presets `smoke`; empty if none has."""
    own = ("pbcs", "masks_")  # what methods of the library are called, baselines are not
    selecting = (c for c in configs if any(name.startswith(own) for name in c.methods))
    # The number of steps depends on n, but it is small only where a config says so.
    smoke = any(loop_settings(c, 1000).outer_steps < FEWEST_STEPS for c in selecting)
    return "This is a smoke run: too few steps to mean anything." if smoke else ""


def compute(config: ConfigDict) -> Compute:
    """Chunks, and how often a run is checkpointed."""
    chunks = {
        "mask_chunk": config.selection.mask_chunk,
        "outer_chunk": config.selection.outer_chunk,
    }
    return Compute(**chunks, callback_every=config.checkpoint_every)


def evaluation_settings(config: ConfigDict, rows: int) -> Inner:
    """How the judges are trained on `rows` rows: from fresh weights, to the last step."""
    given = _own(config.evaluation, Inner)
    if config.evaluation.epochs:
        given["steps"] = config.evaluation.epochs * -(-rows // (given["batch_size"] or rows))
    return Inner(**given, shared_init=False)


def judge_nets(config: ConfigDict, num_classes: int) -> dict[str, Any]:
    """The nets of the evaluation by name: its own first, then those of the transfer."""
    given = config.evaluation
    nets_by_name = {}
    for name in (given.model, *given.get("transfer", ())):
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
