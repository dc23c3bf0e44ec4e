"""The command line of a clone: the same as `pbcs` of an installed wheel.

python launch.py --config=configs/mnist.py --workdir=runs/mnist
python launch.py --config=configs/mnist.py:paper --config.coreset_size=250 --config.seed=3
"""

import os
import signal

for number in (signal.SIGINT, signal.SIGTERM):  # until `run` catches them: imports take seconds
    signal.signal(number, lambda *_: os._exit(75))

from pbcs_jax.__main__ import run  # noqa: E402

if __name__ == "__main__":
    run()
