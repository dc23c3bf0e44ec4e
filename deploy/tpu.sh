#!/usr/bin/env bash
# One selection on a TPU slice with gcloud alone: makes the slice, installs, runs on all hosts.
#
#   NAME=pbcs ZONE=us-central1-a TYPE=v5litepod-8 bash deploy/tpu.sh \
#       --config=configs/mnist.py:paper --workdir=runs/mnist-paper
#
# Rerun it after a preemption: the run continues if its folder is still there (a mounted bucket).
set -euo pipefail

: "${NAME:?the name of the slice}" "${ZONE:?a zone}" "${TYPE:?a type of slice, such as v5litepod-8}"
REPOSITORY=${REPOSITORY:-$(git remote get-url origin)}
VERSION=${VERSION:-v2-alpha-tpuv5-lite}
tpu() { gcloud compute tpus tpu-vm "$@" --zone="$ZONE"; }

tpu describe "$NAME" >/dev/null 2>&1 ||
    tpu create "$NAME" --accelerator-type="$TYPE" --version="$VERSION" --spot
everywhere() { tpu ssh "$NAME" --worker=all --command="$1"; }

everywhere "test -d pbcs_jax || git clone '$REPOSITORY' pbcs_jax"
everywhere "cd pbcs_jax && pip install -q -c deploy/requirements.lock -e '.[experiments,tpu]'"
everywhere "cd pbcs_jax && python3 launch.py $(printf '%q ' "$@")"
