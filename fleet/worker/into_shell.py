"""A program that becomes a shell command, after what only the new process can do for itself.

Run by its path: `python -I -S into_shell.py PARENT COMMAND`. Code between fork and exec would be the other way, and is
unsafe in a process with threads; it also costs the worker its idle connections, which are closed before every fork.
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1
_FIRST_TO_GO = 500
"""Out of memory, the kernel ends the command before the worker that waits for it (0 is an ordinary process's value)."""


def main(parent: int, command: str) -> None:
    """Become `/bin/sh -c COMMAND`, which dies with its parent.

    Args:
        parent: the worker's pid.
        command: the text of the command.
    """
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != parent:
        # It died before the kernel was asked to tell.
        os._exit(1)
    try:
        with open("/proc/self/oom_score_adj", "r+") as file:
            if int(file.read()) < _FIRST_TO_GO:
                file.seek(0)
                file.write(str(_FIRST_TO_GO))
    except OSError:
        pass
    # What is ignored stays so in the command: by Python, or since the worker was started by nohup or in the background.
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
    os.execv("/bin/sh", ["sh", "-c", command])


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
