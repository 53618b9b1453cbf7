"""What holds for all tests."""

from __future__ import annotations

import signal

# In the background of a shell, or under `nohup`, the tests would ignore these signals, and so would all
# that they start: tests of interrupted jobs would wait in vain.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)
