"""Progress as users see it: in a terminal, in a notebook, and where nobody watches."""

import os
import pty
import subprocess
import sys
import time

import nbclient
import nbformat
import pytest

EXAMPLE = """
import numpy as np, pbcs_jax as pbcs
print("imported", flush=True)
x = np.random.default_rng(0).normal(size=(80, 5))
y = np.where(x[:, 0] > 0, "yes", "no")
result = pbcs.select_coreset(0, x, y, None, 8, objective="kernel"{more})
print("chosen:", result.indices.shape, flush=True)
"""


def in_a_terminal(code: str) -> tuple[str, float]:
    """What a process writes to its terminal, and seconds from its imports to its first bar."""
    terminal, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdin=theirs, stdout=theirs, stderr=theirs
    )
    os.close(theirs)
    seen, began, first = b"", 0.0, float("inf")
    while True:
        try:
            piece = os.read(terminal, 1 << 16)
        except OSError:  # the process has ended
            break
        if not piece:
            break
        seen += piece
        began = began or (time.monotonic() if b"imported" in seen else 0.0)
        if b"[00:0" in seen:
            first = min(first, time.monotonic() - began)
    process.wait()
    os.close(terminal)
    return seen.decode(), first


def test_a_terminal_shows_stages_steps_and_the_time_left():
    seen, first = in_a_terminal(EXAMPLE.format(more=""))
    for stage in ("Preparing", "Embedding", "Choosing the ridge", "Compiling", "Selecting"):
        assert stage in seen, seen
    assert "400/400 [" in seen and "loss 0." in seen and "chosen: (8,)" in seen
    assert first < 3
    assert max(len(line) for line in seen.replace("\n", "\r").split("\r")) < 80


def test_silence_if_asked_for():
    seen, _ = in_a_terminal(EXAMPLE.format(more=", progress=False"))
    assert seen.split() == ["imported", "chosen:", "(8,)"]


def test_a_log_file_has_no_bars():
    code = EXAMPLE.format(more="")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["imported", "chosen:", "(8,)"] and not done.stderr


@pytest.mark.parametrize(("more", "is_shown"), [("", True), (", progress=False", False)])
def test_a_notebook_shows_it_too(more, is_shown):
    cell = nbformat.v4.new_code_cell(EXAMPLE.format(more=more))
    notebook = nbformat.v4.new_notebook(cells=[cell])
    nbclient.NotebookClient(notebook, timeout=120).execute()
    said = str(notebook.cells[0].outputs)
    assert "chosen: (8,)" in said
    assert ("Preparing" in said) == is_shown, said


def test_a_bar_within_a_bar_is_the_same_bar_and_none_is_none():
    from pbcs_jax import progress

    with progress.shown(), progress.shown(), progress.steps("Nothing", 3) as show:
        show(1, lambda: "never called")
    progress.stage("Nobody watches")
