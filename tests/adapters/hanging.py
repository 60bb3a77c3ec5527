"""A task module that a worker never has done with importing: its group makes no contact."""

import signal

signal.pause()
