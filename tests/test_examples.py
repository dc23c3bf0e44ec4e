"""The examples do what they say."""

import runpy
from pathlib import Path

EXAMPLES = Path(__file__).parents[1] / "examples"


def test_a_black_box_of_ones_own(capsys):
    """scikit-learn's forests, called from inside of the library's compiled loop."""
    chosen = runpy.run_path(str(EXAMPLES / "black_box.py"))["main"]()
    lines = capsys.readouterr().out.splitlines()
    random, found = (float(line.split(": ")[1]) for line in lines)
    assert len(chosen) == 3 and found < random / 2
