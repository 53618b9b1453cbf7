"""`psopt run` as a script, for a batch script of your own: srun python jobs/train.py configs/lenet5_wasp.yaml.

The words after it are those of `psopt run`: --out DIR, --set KEY=VALUE, --resume DIR; -n 3 without srun or mpirun.
"""

import sys

from psopt.cli import app

if __name__ == "__main__":
    app(["run", *sys.argv[1:]])
