"""Command lines in processes of their own that need not import everything again, for mistakes."""

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace

import pytest
from quick import environment

ROOT = Path(__file__).parents[1]
SERVER = """
import importlib, json, os, sys, traceback
for name in ("pbcs_jax.experiments", "sklearn.datasets"):
    importlib.import_module(name)
from pbcs_jax.__main__ import run

def become(arguments, place):
    code = 0
    try:
        for number, name in ((1, "stdout"), (2, "stderr")):
            os.dup2(os.open(os.path.join(place, name), os.O_WRONLY | os.O_CREAT), number)
        sys.argv = ["launch.py", *arguments]
        run()
    except SystemExit as error:
        code = error.code or 0
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)

for line in sys.stdin:
    if not (pid := os.fork()):
        become(*json.loads(line))
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
"""


@pytest.fixture(scope="module")
def forked():
    """`(arguments) -> returncode, stdout, stderr` of a forked process with one device."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    command = [sys.executable, "-c", SERVER]
    with subprocess.Popen(command, env=environment(), cwd=ROOT, **pipes) as server:

        def launch(*arguments):
            with tempfile.TemporaryDirectory() as place:
                server.stdin.write(json.dumps([list(map(str, arguments)), place]) + "\n")
                server.stdin.flush()
                code = int(server.stdout.readline())
                said = {name: Path(place, name).read_text() for name in ("stdout", "stderr")}
            return SimpleNamespace(returncode=code, **said)

        yield launch
        server.stdin.close()
