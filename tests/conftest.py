"""What holds for all tests."""

from __future__ import annotations

import signal

# A shell that starts the tests in the background has them ignore Ctrl-C, and so would all that they
# start: tests of interrupted jobs would wait in vain.
signal.signal(signal.SIGINT, signal.default_int_handler)
