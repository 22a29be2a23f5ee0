"""A separate disk for a broker, with a limited write rate.

A file in memory is attached to a loop device with an ext4 file system, so that writes do not depend
on the disks of this machine. The block throttle of control groups limits the bytes per second that
the processes in `Disk.group` write to the device. This needs root and the blkio controller of
cgroup v1.
"""

from __future__ import annotations

from pathlib import Path
from typing import Self

from tools.record.kafka import artifacts

CONTROLLER = Path("/sys/fs/cgroup/blkio")
MEMORY = Path("/dev/shm")
SIZE = 256 << 20


class Disk:
    """A context manager that mounts the disk at `mount`, and removes it at the end."""

    def __init__(self, work: Path) -> None:
        self.mount = work / "disk"
        self.group = CONTROLLER / work.name
        self._image = MEMORY / f"{work.name}.image"
        self._device = ""

    def __enter__(self) -> Self:
        artifacts.require("losetup", "mkfs.ext4", "mount", "umount")
        self.group.mkdir()
        self.mount.mkdir()
        with self._image.open("wb") as image:
            image.truncate(SIZE)
        # A journal would be written by a thread of the kernel, outside of the group.
        run("mkfs.ext4", "-q", "-O", "^has_journal", str(self._image))
        self._device = run("losetup", "--find", "--show", str(self._image)).strip()
        run("mount", self._device, str(self.mount))
        return self

    def limit(self, process: int, bytes_per_s: int) -> None:
        """Limit the bytes per second that `process` writes to the disk; 0 removes the limit."""
        (self.group / "cgroup.procs").write_text(str(process))
        number = Path(f"/sys/block/{Path(self._device).name}/dev").read_text().strip()
        limit = self.group / "blkio.throttle.write_bps_device"
        limit.write_text(f"{number} {bytes_per_s}")

    def __exit__(self, *_: object) -> None:
        run("umount", str(self.mount))
        run("losetup", "--detach", self._device)
        self.group.rmdir()
        self._image.unlink()


def run(*command: str) -> str:
    return artifacts.run(command, timeout=60)
