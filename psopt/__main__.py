"""``python -m psopt``: the same as the ``psopt`` command."""

from psopt.cli import main

main()
