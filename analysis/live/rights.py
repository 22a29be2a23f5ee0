"""Rights: a socket is opened with them, and everything after it is done without.

Where sudo was used, the process becomes the user who called: what it writes is theirs, and bytes
from the wire are read by nobody who could do harm.
"""

from __future__ import annotations

import os
from collections.abc import Mapping


def drop(environment: Mapping[str, str] = os.environ) -> str | None:
    """Become the user who called sudo, for good; the name, None where it was not used.

    Raises OSError where the system does not let us.
    """
    user, group = environment.get("SUDO_UID", ""), environment.get("SUDO_GID", "")
    if os.geteuid() != 0 or not (user.isdecimal() and group.isdecimal()) or user == "0":
        return None
    name = environment.get("SUDO_USER", user)
    try:
        os.initgroups(name, int(group))
    except (OSError, KeyError):  # a user of whom this system knows the number only
        os.setgroups([int(group)])
    os.setgid(int(group))
    os.setuid(int(user))
    return name
