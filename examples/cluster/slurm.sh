#!/bin/bash
# A study over the nodes of a Slurm cluster: sbatch slurm.sh STUDY DIR. The same command again goes on in DIR.
# The wheel with warmcore[dask] is installed in the environment that every node sees.
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=32
#SBATCH --time=02:00:00
set -euo pipefail
study=$1 out=$2
address=tcp://$(hostname):8786
dask scheduler --port 8786 &
scheduler=$!
trap 'kill "$scheduler"' EXIT
# A thread simulates one trial at a time.
srun dask worker "$address" --nworkers 1 --nthreads "$SLURM_CPUS_PER_TASK" --no-dashboard &
warmcore study run "$study" --out "$out" --dask "$address"
