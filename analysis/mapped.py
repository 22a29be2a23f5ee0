"""Tables in files that are mapped into memory, so that the system can evict their pages."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pyarrow as pa

from analysis.temporary import temporary_folder
from dissector.tables.finalizer import NamedBatch


def mapped(rows: Iterable[NamedBatch]) -> dict[str, pa.Table]:
    """The rows as whole tables, without those that have no batch. Raises OSError if the disk is
    full."""
    writers: dict[str, Any] = {}
    with temporary_folder() as folder:
        with ExitStack() as stack:
            for name, batch in rows:
                if name not in writers:
                    writer = pa.ipc.new_file(str(Path(folder, name)), batch.schema)
                    writers[name] = stack.enter_context(writer)
                writers[name].write_batch(batch)
        # A mapping outlives the name of its file, so no clean-up is needed later.
        maps = {name: pa.memory_map(str(Path(folder, name))) for name in writers}
        return {name: pa.ipc.open_file(file).read_all() for name, file in maps.items()}
