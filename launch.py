"""The command line of a clone: the same as `pbcs` of an installed wheel.

python launch.py --config=configs/mnist.py --workdir=runs/mnist
python launch.py --config=configs/mnist.py:paper --config.coreset_size=250 --config.seed=3
"""

from pbcs_jax.__main__ import run

if __name__ == "__main__":
    run()
