"""Small memories of long streams: pure functions on a state of fixed shape, for any training loop.

state = memory.init(x, y)                   shapes and dtypes of a chunk
state = memory.add(key, state, x, y)        chunk by chunk, of a stream of any length
x, y, weights = memory.sample(key, state, n)

`weights` is what each sample counts in the loss of the replay; 0 where nothing is stored yet.
"""

from pbcs_jax.replay.base import Memory, load, rehearse, save
from pbcs_jax.replay.class_balanced import ClassBalancedReservoir
from pbcs_jax.replay.kernel import by_kernel
from pbcs_jax.replay.merge_reduce import MergeReduce
from pbcs_jax.replay.reservoir import Reservoir
from pbcs_jax.replay.tasks import TaskMemory

__all__ = [
    "ClassBalancedReservoir",
    "Memory",
    "MergeReduce",
    "Reservoir",
    "TaskMemory",
    "by_kernel",
    "load",
    "rehearse",
    "save",
]
