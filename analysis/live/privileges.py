"""Privileges: root opens the socket, and an ordinary user does everything after it.

Under sudo, the process switches to the calling user. So this user owns the files, and a fault in
the parsing of network data cannot act as root.
"""

from __future__ import annotations

import os


def drop() -> None:
    """Switch permanently to the user that called sudo, if any.

    Raises OSError if the system refuses.
    """
    user, group = os.environ.get("SUDO_UID", ""), os.environ.get("SUDO_GID", "")
    if os.geteuid() != 0 or not (user.isdecimal() and group.isdecimal()) or user == "0":
        return
    try:
        os.initgroups(os.environ.get("SUDO_USER", user), int(group))
    except (OSError, KeyError):  # a user id without a name on this system
        os.setgroups([int(group)])
    os.setgid(int(group))
    os.setuid(int(user))


def reason(error: OSError) -> str:
    """The text of an error. If the user that called sudo lacks a permission, it names this user."""
    text = error.strerror or str(error)
    if isinstance(error, PermissionError) and os.environ.get("SUDO_UID") == str(os.geteuid()):
        text += f" for {os.environ.get('SUDO_USER')}: under sudo, the calling user writes files"
    return text
