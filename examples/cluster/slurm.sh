#!/bin/bash
# One run over 4 nodes with 8 accelerators each: sbatch examples/cluster/slurm.sh
# Needs: evergrad on every node (EVERGRAD, its environment) and a folder that all nodes share (RUNS).
#SBATCH --job-name=evergrad
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
#SBATCH --cpus-per-task=16
#SBATCH --time=24:00:00
#SBATCH --requeue
#SBATCH --signal=TERM@120
#SBATCH --output=%x-%j.log
set -euo pipefail

EVERGRAD=${EVERGRAD:-$HOME/evergrad/.venv/bin/evergrad}
RUNS=${RUNS:-$HOME/runs}
RUN=$RUNS/${SLURM_JOB_NAME:-evergrad}-${SLURM_JOB_ID}

# Process 0 runs on the first node and listens at the address of that name; its port must be free there.
first=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
export COORDINATOR="$first:$((20000 + SLURM_JOB_ID % 20000))"
export EVERGRAD RUN

# A job that is requeued after a node was lost goes on from the last checkpoint.
if [ -e "$RUN/settings.json" ]; then
  export COMMAND="resume $RUN"
else
  export COMMAND="train text --units 256 --estimator ok --rank 8 --window 16 --batch 1024 --steps 1000000 --out $RUN"
fi

# Exit code 4: a process was lost. Put the job back into the queue; it resumes above.
code=0
# shellcheck disable=SC2016
srun --kill-on-bad-exit=1 bash -c '
  exec "$EVERGRAD" $COMMAND --coordinator "$COORDINATOR" --processes "$SLURM_NTASKS" \
    --process-id "$SLURM_PROCID" --join-timeout 600' || code=$?
if [ "$code" -eq 4 ]; then
  scontrol requeue "$SLURM_JOB_ID"
fi
exit "$code"
