"""Hides what only POSIX has, in each Python process that has this folder in ``PYTHONPATH``.

Modules cannot be imported, functions of `os` and `signal` are absent, and nothing below ``/proc``
and ``/sys`` can be opened or found. Only packages that choose by the name of the system, which
stays, still get what they ask for: those of `EXEMPT`.
"""

from __future__ import annotations

import builtins
import errno
import io
import os
import signal
import sys
from collections.abc import Callable
from functools import wraps
from typing import Any

MODULES = frozenset({
    "crypt", "fcntl", "grp", "nis", "ossaudiodev", "pty", "pwd", "resource", "spwd", "syslog",
    "termios", "tty",
})  # fmt: skip
"""Modules that Windows lacks; `posix` is part of the interpreter."""

OF_OS = (
    "chown", "chroot", "ctermid", "eventfd", "fchdir", "fchmod", "fchown", "fork", "forkpty",
    "getegid", "geteuid", "getgid", "getgroups", "getloadavg", "getpgid", "getpgrp", "getpriority",
    "getsid", "initgroups", "killpg", "lchown", "lockf", "major", "memfd_create",
    "mkfifo", "mknod", "nice", "openpty", "pathconf", "pipe2", "posix_fadvise", "posix_fallocate",
    "posix_spawn", "posix_spawnp", "pread", "preadv", "pwrite", "pwritev", "readv",
    "register_at_fork", "sched_getaffinity", "sched_setaffinity", "sched_yield", "sendfile",
    "setpgid", "setpriority", "setsid", "setuid", "statvfs", "sync", "sysconf", "tcgetpgrp",
    "wait", "wait3", "wait4", "waitid", "writev",
    "O_ASYNC", "O_CLOEXEC", "O_DIRECT", "O_DIRECTORY", "O_DSYNC", "O_NDELAY", "O_NOATIME",
    "O_NOCTTY", "O_NOFOLLOW", "O_NONBLOCK", "O_PATH", "O_SYNC", "O_TMPFILE",
)  # fmt: skip
"""What `os` has on POSIX alone."""

OF_SIGNAL = (
    "SIGALRM", "SIGCHLD", "SIGCONT", "SIGHUP", "SIGPIPE", "SIGQUIT", "SIGSTOP", "SIGTSTP",
    "SIGUSR1", "SIGUSR2", "alarm", "getitimer", "pause", "pthread_kill", "pthread_sigmask",
    "setitimer", "siginterrupt", "sigpending", "sigtimedwait", "sigwait", "sigwaitinfo",
)  # fmt: skip
"""What `signal` has on POSIX alone; `subprocess` itself takes SIGKILL here."""

FOLDERS = ("/proc", "/sys")


def is_hidden(path: object) -> bool:
    """Whether a path leads into a folder that other systems lack."""
    if isinstance(path, int) or not isinstance(path, (str, bytes, os.PathLike)):
        return False
    text = os.fsdecode(path)
    return any(text == folder or text.startswith(f"{folder}/") for folder in FOLDERS)


def refusing(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that finds nothing at a hidden path."""

    @wraps(function)
    def refuse(path: Any = ".", *args: Any, **options: Any) -> Any:
        if is_hidden(path):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), os.fsdecode(path))
        return function(path, *args, **options)

    return refuse


class Absent:
    """A finder that refuses modules."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        """Raise ImportError for a hidden module, and find no other."""
        if name in MODULES:
            raise ModuleNotFoundError(f"No module named {name!r}: it is hidden", name=name)


sys.meta_path.insert(0, Absent())
for name in MODULES:
    sys.modules.pop(name, None)
for name in OF_OS:
    if hasattr(os, name):
        delattr(os, name)
for name in OF_SIGNAL:
    if hasattr(signal, name):
        delattr(signal, name)
builtins.open = io.open = refusing(io.open)  # type: ignore[assignment]
for name in ("open", "stat", "lstat", "listdir", "scandir", "readlink"):
    setattr(os, name, refusing(getattr(os, name)))
