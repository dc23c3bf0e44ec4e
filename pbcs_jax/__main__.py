"""The command line: `pbcs`, `python -m pbcs_jax`, and launch.py of a clone.

pbcs --config=FILE_OR_NAME[:PRESET] [--workdir=DIR] [--config.KEY=VALUE ...]
     [--coordinator=HOST:PORT --num_processes=N --process_id=I]
"""

import ast
import importlib.util
import logging
import os
import sys
import traceback
from pathlib import Path
from typing import NoReturn

import jax
from absl import app, flags
from absl import logging as absl_logging

from pbcs_jax import ending, interrupt, processes
from pbcs_jax.compute.mesh import use_all_cores
from pbcs_jax.errors import UserError, check_known, one_line
from pbcs_jax.npz import reason
from pbcs_jax.outer.loop import DivergenceError

PROCESSES = ("coordinator", "num_processes", "process_id")
NEEDED = ("ml_collections", "matplotlib", "PIL", "rich", "tensorboardX", "sklearn")
AGAIN = "make room or mend it, then rerun the same command to continue"


def run() -> None:
    """Reads the command line, and runs the experiment of the config that it names."""
    interrupt.catch()
    if {"--help", "-h", "--helpfull", "-help"} & set(sys.argv[1:]):
        print(usage())
        return
    missing = [name for name in NEEDED if not importlib.util.find_spec(name)]
    if missing:
        fail(f"packages are missing ({', '.join(missing)}): pip install 'pbcs_jax[experiments]'")
    from ml_collections import config_flags

    config_flags.DEFINE_config_file(
        "config", help_string="FILE_OR_NAME[:PRESET] of the experiment.", lock_config=True
    )
    flags.DEFINE_string("workdir", None, "Folder of this run; by default runs/NAME_OF_THE_CONFIG.")
    flags.DEFINE_string("coordinator", None, "host:port of process 0, where jax does not find it.")
    flags.DEFINE_integer("num_processes", None, "How many processes there are.")
    flags.DEFINE_integer("process_id", None, "The number of this one, from 0.")
    try:
        app.run(main, flags_parser=parse_flags)
    except interrupt.Stopped as stopped:
        print(interrupt.message(str(stopped)), file=sys.stderr)
        sys.exit(interrupt.CODE)
    finally:
        interrupt.ignore()


def configs() -> dict[str, Path]:
    """The config files that come with the package, by name."""
    spec = importlib.util.find_spec("pbcs_jax.configs")
    folders = spec.submodule_search_locations if spec else None
    files = sorted(Path(folder) for folder in folders or ())
    return {f.stem: f for folder in files for f in sorted(folder.glob("[!_]*.py"))}


def usage() -> str:
    """What `--help` prints: how to call, and all configs with their presets."""
    lines = [__doc__ or "", "Configs and their presets:", ""]
    for name, file in configs().items():
        tree = ast.parse(file.read_text())
        presets = [
            [ast.literal_eval(key) for key in node.value.keys if key is not None]
            for node in tree.body
            if isinstance(node, ast.Assign)
            and isinstance(node.value, ast.Dict)
            and ast.unparse(node.targets[0]) == "PRESETS"
        ]
        lines.append(f"  {name:24}{', '.join(presets[0] if presets else [])}")
        lines.append(f"      {(ast.get_docstring(tree) or '').splitlines()[0]}")
    return "\n".join([*lines, "", "docs/guide/command_line.md explains the keys of a config."])


def find_config(argument: str) -> str:
    """`--config=mnist:smoke` as a path, where no such file exists but a config of that name."""
    flag, equals, value = argument.partition("=")
    file, colon, preset = value.partition(":")
    if flag.lstrip("-") == "config" and equals and not Path(file).exists() and file in configs():
        return f"{flag}={configs()[file]}{colon}{preset}"
    return argument


def parse_flags(arguments: list[str]) -> list[str]:
    """absl's own parsing, with one line and no traceback for what a user can get wrong."""
    from pbcs_jax.experiments.config import RENAMED

    arguments = [find_config(argument) for argument in arguments]
    try:
        return flags.FLAGS(arguments)
    except (KeyError, AttributeError) as error:  # a key that the config does not have
        given = {a.partition("=")[0].removeprefix("--config.") for a in arguments}
        for old, new in (pair for renamed in RENAMED.values() for pair in renamed.items()):
            if old in given and repr(old.split(".")[-1]) in str(error):
                fail(f"config key {old!r} was renamed: use {new!r}")
        fail("config key " + str(error).replace("\\n", " ").replace("\\'", "").strip("\"'"))
    except (flags.Error, ValueError, TypeError, ImportError) as error:
        # An error inside the config file comes with its traceback; its message is the last line.
        *_, last = str(error).strip().splitlines()
        fail(last.removeprefix("pbcs_jax.errors.UserError: "))


def keep_compiled_programs() -> None:
    """A second run need not compile again; JAX_COMPILATION_CACHE_DIR names another folder."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "pbcs_jax")
    if not jax.config.jax_compilation_cache_dir:
        jax.config.update("jax_compilation_cache_dir", str(cache))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)


def fail(message: str) -> NoReturn:
    """One line, and exit code 2."""
    say(f"error: {processes.name()}", message)
    ending.end(2, message)
    sys.exit(2)


def say(before: str, message: str) -> None:
    """One line on standard error."""
    line = "".join(c if c.isprintable() else repr(c)[1:-1] for c in message)
    print(f"{before}{line}", file=sys.stderr, flush=True)


def main(arguments: list[str]) -> None:
    """Runs the experiment of the parsed flags."""
    from ml_collections import config_flags
    from rich.console import Console

    from pbcs_jax.experiments import EXPERIMENTS

    if len(arguments) > 1:
        fail(f"argument {arguments[1]!r} is not understood: flags start with --")
    config = flags.FLAGS.config
    if config is None:
        fail("no --config is given: for example --config=mnist; --help lists all of them")
    file, _, preset = config_flags.get_config_filename(flags.FLAGS["config"]).partition(":")
    try:
        experiment = config.get("experiment")
    except OSError:  # ml_collections keeps it back until the config is used
        fail(f"config file {file!r} cannot be read: --help lists those that there are")
    default = Path("runs", "-".join(filter(None, [Path(file).stem, preset])))
    keep_compiled_programs()
    absl_logging.set_verbosity(absl_logging.WARNING)
    try:
        processes.start(*(flags.FLAGS[name].value for name in PROCESSES))
        use_all_cores()
        jax.devices()  # processes find each other's devices within two minutes, or not at all
        if processes.is_first():
            logging.getLogger("pbcs_jax").setLevel(logging.INFO)  # of this package only
        check_known("experiment", experiment, EXPERIMENTS)
        if processes.are_several():
            ending.heed_signals(lambda why: say(f"error: {processes.name()}", why))
        console = Console(quiet=not processes.is_first())
        with ending.named_losses():
            processes.agree({"the config": config.to_dict()})
            EXPERIMENTS[experiment](config, str(flags.FLAGS.workdir or default), console)
            processes.from_first(lambda: "done")  # JAX gives those that end first 10 s, no more
    except (UserError, DivergenceError) as error:
        fail(str(error))
    except processes.Ended as ended:
        before = "" if ended.code == interrupt.CODE else "error: "
        say(before + processes.name(), str(ended))
        ending.end(ended.code, str(ended), orderly=ended.code != 1)
    except OSError as error:
        fail(f"{reason(error)}{_where(error)}: {AGAIN}")
    except (MemoryError, jax.errors.JaxRuntimeError) as error:
        if isinstance(error, jax.errors.JaxRuntimeError) and "RESOURCE_EXHAUSTED" not in str(error):
            raise
        fail(f"no memory is left: use a smaller network or fewer samples, or {AGAIN}")
    except Exception as error:
        if processes.are_several():  # else the others would wait for this one
            traceback.print_exc()
            say(f"error: {processes.name()}", one_line(error))
            ending.end(1, one_line(error), orderly=False)
        raise


def _where(error: OSError) -> str:
    return f" at {error.filename!r}" if error.filename else ""


if __name__ == "__main__":
    run()
