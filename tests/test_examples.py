"""The examples do what they say."""

import runpy
from pathlib import Path

from pbcs_jax import replay

EXAMPLES = Path(__file__).parents[1] / "examples"


def test_a_black_box_of_ones_own(capsys):
    """scikit-learn's forests, called from inside of the library's compiled loop."""
    chosen = runpy.run_path(str(EXAMPLES / "black_box.py"))["main"]()
    lines = capsys.readouterr().out.splitlines()
    random, found = (float(line.split(": ")[1]) for line in lines)
    assert len(chosen) == 3 and found < random / 2


def test_a_memory_is_fed_from_an_iterator():
    example = runpy.run_path(str(EXAMPLES / "replay_stream.py"))
    memory = replay.ClassBalancedReservoir(30, 10)
    state, count = example["feed"](memory, example["made"](450), chunk=100)
    assert count == 400 and state.counts.tolist() == [3] * 10
    assert memory.rows(state).x.shape == (30, 512)
