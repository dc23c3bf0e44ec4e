#!/usr/bin/env bash
# One selection on several nodes by Slurm, one process per GPU:
#
#   sbatch deploy/slurm.sh --config=configs/mnist.py:paper --workdir=runs/mnist-paper
#
# JAX finds the processes by Slurm's variables. Five minutes before the time is up all processes get
# SIGTERM, save the same step and exit with 75; the job then goes back into the queue, and continues.
#SBATCH --job-name=pbcs
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=8
#SBATCH --gpus-per-task=1
#SBATCH --cpus-per-task=8
#SBATCH --time=12:00:00
#SBATCH --signal=TERM@300
#SBATCH --requeue
set -uo pipefail

srun --kill-on-bad-exit=0 python launch.py "$@"
code=$?
if [ "$code" = 75 ]; then
    scontrol requeue "$SLURM_JOB_ID"
fi
exit "$code"
