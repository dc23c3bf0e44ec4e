"""How tests compile: programs are tiny, so that compiling is what takes time."""

import os

FLAGS = " ".join(
    [
        "--xla_backend_optimization_level=0",
        "--xla_cpu_use_fusion_emitters=false",  # these alone take half of the time
        "--xla_cpu_parallel_codegen_split_count=1",
    ]
)


def environment() -> dict[str, str]:
    """Of a process that a test starts, with the devices that a user's machine has."""
    return os.environ | {"XLA_FLAGS": FLAGS, "COLUMNS": "200"}
