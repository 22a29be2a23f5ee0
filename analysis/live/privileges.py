"""Privileges: root opens the socket, and an ordinary user does everything after it.

Under sudo, the process switches to the calling user. So this user owns the files, and a fault in
the parsing of network data cannot act as root.
"""

from __future__ import annotations

import os
from collections.abc import Mapping


def drop(environment: Mapping[str, str] = os.environ) -> str | None:
    """Switch permanently to the user that called sudo; returns the name, None without sudo.

    Raises OSError if the system refuses.
    """
    user, group = environment.get("SUDO_UID", ""), environment.get("SUDO_GID", "")
    if os.geteuid() != 0 or not (user.isdecimal() and group.isdecimal()) or user == "0":
        return None
    name = environment.get("SUDO_USER", user)
    try:
        os.initgroups(name, int(group))
    except (OSError, KeyError):  # a user id without a name on this system
        os.setgroups([int(group)])
    os.setgid(int(group))
    os.setuid(int(user))
    return name
