"""`psopt sweep` as a script: python jobs/sweep.py configs/sweeps/rates.yaml --local --jobs 2, or with --slurm.

A second call runs what is missing. The words after it are those of `psopt sweep`.
"""

import sys

from psopt.cli import app

if __name__ == "__main__":
    app(["sweep", *sys.argv[1:]])
