#!/bin/bash
#SBATCH --job-name=lenet5-wasp
#SBATCH --output=/home/user/digits/runs/lenet5-wasp/batch/%j.log
#SBATCH --open-mode=append
#SBATCH --signal=B:USR2@120
#SBATCH --requeue
#SBATCH --partition=cpu
#SBATCH --nodes=1
#SBATCH --ntasks=1
#SBATCH --cpus-per-task=6
#SBATCH --time=1-00:00:00
#SBATCH hetjob
#SBATCH --partition=gpu
#SBATCH --nodes=2
#SBATCH --ntasks=8
#SBATCH --ntasks-per-node=4
#SBATCH --cpus-per-task=6
#SBATCH --time=1-00:00:00
#SBATCH --gpus-per-node=4

set -eu
cd /home/user/digits

# Slurm warns this shell 120 s before the time limit; the ranks are to know.
psopt_warned='' psopt_step=''
psopt_warn() { psopt_warned=yes; [ -z "$psopt_step" ] || kill -s USR2 "$psopt_step" || true; }
trap psopt_warn USR2

cpus="${SLURM_CPUS_PER_TASK_HET_GROUP_1:-6}"
export OMP_NUM_THREADS="${OMP_NUM_THREADS:-$cpus}"

run=/home/user/digits/runs/lenet5-wasp
if [ -e "$run/config.yaml" ]; then # requeued: go on from the newest checkpoint
  job=(--resume "$run")
else
  job=("$run/batch/job.yaml" --out "$run")
fi

# MPICH names shared memory by job and step, and ranks that are killed leave it behind: a
# requeued job takes a step of another number, or it would wait for ever.
for ((n = 0; n < ${SLURM_RESTART_COUNT:-0}; n++)); do
  srun --het-group=0,1 --mpi=none --nodes=1 --ntasks=1 true || true
done

if [ -z "$psopt_warned" ]; then
  srun --export=ALL --mpi=pmi2 --kill-on-bad-exit=1 --het-group=0 --cpus-per-task="$cpus" /home/user/digits/.venv/bin/python -m psopt run "${job[@]}" \
    : --het-group=1 --cpus-per-task="$cpus" /home/user/digits/.venv/bin/python -m psopt run "${job[@]}" &
  psopt_step=$!
  [ -z "$psopt_warned" ] || { sleep 1; psopt_warn; } # it came in between
  # A signal ends a wait early.
  while kill -0 "$psopt_step" 2> /dev/null; do wait "$psopt_step" || true; done
  status=0
  wait "$psopt_step" || status=$?
else
  echo "warned before the ranks were started: the lines above took too long" >&2
  status=1
fi

# 2 and 3 are a job that is not valid, and one that diverged: they would do so again, and so
# would one that is warned before its ranks have started.
if [ -n "$psopt_warned" ] && [ -n "$psopt_step" ] &&
  compgen -G "$run/checkpoints/step-*.h5" > /dev/null; then
  case "$status" in
    0 | 2 | 3) ;;
    *) scontrol requeue "$SLURM_JOB_ID" || true ;;
  esac
fi
exit "$status"
