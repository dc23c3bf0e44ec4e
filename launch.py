"""The command line.

python launch.py --config=configs/mnist.py --workdir=runs/mnist
python launch.py --config=configs/mnist.py:paper --config.coreset_size=250 --config.seed=3
"""

import logging
import os
import sys
from pathlib import Path
from typing import NoReturn

import jax
from absl import app, flags
from absl import logging as absl_logging
from ml_collections import config_flags
from rich.console import Console

from pbcs_jax.compute.mesh import use_all_cores
from pbcs_jax.errors import UserError
from pbcs_jax.experiments import EXPERIMENTS
from pbcs_jax.outer.loop import DivergenceError

_CONFIG = config_flags.DEFINE_config_file(
    "config", help_string="FILE[:preset] of the experiment.", lock_config=True
)
_WORKDIR = flags.DEFINE_string(
    "workdir", None, "Folder of this run, made if need be; by default runs/NAME_OF_THE_CONFIG."
)


def parse_flags(arguments: list[str]) -> list[str]:
    """absl's own parsing, with one line and no traceback for what a user can get wrong."""
    try:
        return flags.FLAGS(arguments)
    except (KeyError, AttributeError) as error:  # a key that the config does not have
        fail("config key " + str(error).replace("\\n", " ").replace("\\'", "").strip("\"'"))
    except (flags.Error, ValueError, TypeError, ImportError) as error:
        # An error inside the config file comes with its traceback; what it says is the last line.
        *_, last = str(error).strip().splitlines()
        fail(last.removeprefix("pbcs_jax.errors.UserError: "))


def keep_compiled_programs() -> None:
    """A second run need not compile again; JAX_COMPILATION_CACHE_DIR says where they are kept."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "pbcs_jax")
    if not jax.config.jax_compilation_cache_dir:
        jax.config.update("jax_compilation_cache_dir", str(cache))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)


def fail(message: str) -> NoReturn:
    """One line, and exit code 2."""
    print(f"error: {message}", file=sys.stderr)
    sys.exit(2)


def main(arguments: list[str]) -> None:
    """Runs the experiment that the config names."""
    if len(arguments) > 1:
        fail(f"argument {arguments[1]!r} is not understood: flags start with --")
    if _CONFIG.value is None:
        fail("no --config is given: for example --config=configs/mnist.py")
    file, _, preset = config_flags.get_config_filename(flags.FLAGS["config"]).partition(":")
    config = _CONFIG.value
    try:
        experiment = config.get("experiment")
    except OSError:  # ml_collections keeps it back until the config is used
        fail(f"config file {file!r} cannot be read: see configs/ for those there are")
    workdir = _WORKDIR.value or Path("runs", "-".join(filter(None, [Path(file).stem, preset])))
    keep_compiled_programs()
    use_all_cores()
    absl_logging.set_verbosity(absl_logging.WARNING)
    logging.getLogger("pbcs_jax").setLevel(logging.INFO)  # of this package only
    try:
        if experiment not in EXPERIMENTS:
            raise UserError(
                f"experiment {experiment!r} is unknown: use one of {', '.join(EXPERIMENTS)}"
            )
        EXPERIMENTS[experiment](config, str(workdir), Console())
    except (UserError, DivergenceError) as error:
        fail(str(error))
    except KeyboardInterrupt:
        fail("interrupted; the same command goes on from the last checkpoint")


if __name__ == "__main__":
    app.run(main, flags_parser=parse_flags)
