"""What checkpoints of ResNet-18 cost: ``python jobs/checkpoint_cost.py``; at most 3 % of the wall time."""

import argparse

from psopt.bench.checkpoints import measure

AIM = 0.03


def main() -> None:
    """Measure, print, and say by the exit status whether the aim is met."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=5, help="alternating runs with and without")
    parser.add_argument("--steps", type=int, default=61, help="of each run")
    parser.add_argument("--every", type=int, default=20, help="steps from checkpoint to checkpoint")
    parser.add_argument("--batch-size", type=int, default=32, help="of a worker")
    parser.add_argument("--ranks", type=int, default=2, help="with the coordinator")
    options = parser.parse_args()
    cost = measure(options.pairs, options.steps, options.every, options.batch_size, options.ranks)
    print(
        f"a step takes {cost.step_seconds:.3f} s; {cost.saves} checkpoints in {options.steps} steps"
    )
    print(f"share of the wall time that checkpoints add, median: {100 * cost.overhead:.2f} %")
    print(f"... in which the training was held up: {100 * cost.held_up:.2f} %")
    print(f"... of one processor, by the thread that writes: {100 * cost.processor:.2f} %")
    raise SystemExit(0 if cost.overhead <= AIM else 1)


if __name__ == "__main__":
    main()
