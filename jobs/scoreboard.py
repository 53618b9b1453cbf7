"""What five schemes survive on real ranks, under Open MPI 5 with ULFM: python jobs/scoreboard.py OUT.

Writes OUT/scoreboard.md and keeps all runs; about 30 minutes. Exit status 1 when a run did not end as it should.
"""

import argparse
from pathlib import Path

from psopt.chaos.scoreboard import Plan, markdown, measure

CONFIGS = Path(__file__).parents[1] / "configs"
EPOCHS = {"asp": (4, 2), "wasp": (4, 2), "bsp": (4, 2), "dane": (14, 8), "sandblaster": (14, 6)}


def main() -> int:
    """Read the command line, run all, print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--schemes", nargs="+", choices=EPOCHS, default=list(EPOCHS))
    parser.add_argument(
        "--kills", type=int, default=7, help="runs of each in which a worker is killed"
    )
    parser.add_argument(
        "--messages", type=int, default=3, help="in which one dies in a reply of 16 MB"
    )
    parser.add_argument("--seed", type=int, default=12)
    given = parser.parse_args()
    plans = [Plan(CONFIGS / f"lenet5_{name}.yaml", *EPOCHS[name]) for name in given.schemes]
    rows = measure(plans, (given.kills, given.messages), given.seed, given.out, print)
    text = markdown(rows)
    (given.out / "scoreboard.md").write_text(text, encoding="utf-8")
    print(text)
    return int(any(row.right < len(row.outcomes) for row in rows))


if __name__ == "__main__":
    raise SystemExit(main())
