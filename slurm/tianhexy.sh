#!/bin/bash
#SBATCH --job-name=lenet5-wasp
#SBATCH --output=/home/user/digits/runs/lenet5-wasp/batch/%j.log
#SBATCH --open-mode=append
#SBATCH --signal=B:USR2@120
#SBATCH --no-requeue
#SBATCH --partition=a100
#SBATCH --nodes=2
#SBATCH --ntasks=9
#SBATCH --ntasks-per-node=5
#SBATCH --cpus-per-task=4
#SBATCH --time=0-12:00:00
#SBATCH -G 8
#SBATCH --exclusive

set -eu
cd /home/user/digits

# Slurm warns this shell 120 s before the time limit; the ranks are to know.
psopt_warned='' psopt_step=''
psopt_warn() { psopt_warned=yes; [ -z "$psopt_step" ] || kill -s USR2 "$psopt_step" || true; }
trap psopt_warn USR2

set +u # for files that are not written for it
# A shell of a batch job may not know `module` yet.
# shellcheck source=/dev/null
type module > /dev/null 2>&1 || . /etc/profile || true
module load mpich
set -u
trap psopt_warn USR2 # whatever they have set

cpus="${SLURM_CPUS_PER_TASK:-4}"
export OMP_NUM_THREADS="${OMP_NUM_THREADS:-$cpus}"

run=/home/user/digits/runs/lenet5-wasp
if [ -e "$run/config.yaml" ]; then # requeued: go on from the newest checkpoint
  job=(--resume "$run")
else
  job=("$run/batch/job.yaml" --out "$run")
fi

if [ -z "$psopt_warned" ]; then
  yhrun --export=ALL --mpi=pmi2 --kill-on-bad-exit=1 --cpus-per-task="$cpus" \
    /home/user/digits/.venv/bin/python -m psopt run "${job[@]}" &
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

exit "$status"
