"""Start and end of a process that runs one command: what it prevents, and what it imports early.

`prepare` does all of the following, but the last.

Variables of the environment: NumPy's OpenBLAS starts threads at its import, which wait actively for
matrices to multiply. No command multiplies matrices: `export` of a small capture took 0.32 s of
processor time with these threads, and 0.21 s without. PyArrow's own allocator keeps memory that
NumPy could use: with that of the system, the peak of 800,000 packets is 270 MB instead of 310 MB.
NumPy asks for huge pages (2 MB) for large arrays. On a virtual machine, right after a program with
1.5 GB, `export` of 1 GB took 0.70 s with huge pages and 0.51 s without them; the peak was 230 and
213 MB.

Turns of threads: while one thread runs Python, another waits up to 5 ms for its turn. A thread that
reads or writes blocks needs many short turns: with 1 ms, `export` of 1 GB takes 3 % less time.

The last collection: at its end, Python looks several times for reference cycles among all objects.
None of them holds data that must still be written: `export` of a small capture takes 0.02 s less.

`hidden`: PyArrow imports pandas, if it is installed, at its first conversion, to recognize
DataFrames. Few commands make DataFrames, and the import takes longer than all other work on a small
capture: `export` of a recording took 1.87 s of processor time with pandas hidden, and 2.37 s
without. Commands that need pandas call `allow_pandas` before they import PyArrow. PyArrow also
imports the clients of stores such as S3, which no command uses: URLs are opened with fsspec.

`stand_ins`: NumPy and PyArrow import modules of which most commands use nothing, or one
function: masked arrays, types for annotations, documentation and its parser, TLS. `export` of a
small capture takes 0.05 s less.

Signals: SIGTERM, which `timeout`, systemd and Kubernetes send, and SIGHUP, which arrives
when a terminal is closed, end a command as Ctrl-C does: files are closed or removed. A signal may
arrive while code in C runs, which may lose its exception. So it is raised again at the next block
of input; see `raise_interruption`.

The finders here are of no base class: `importlib.abc` imports `tempfile`, `shutil` and `lzma`.

`import_pipeline`: `sniff` drops the privileges of root once its sockets are open. The modules and
files that it needs may be readable only by root, so it reads them before.
"""

from __future__ import annotations

import atexit
import gc
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from importlib import import_module
from importlib.machinery import ModuleSpec
from pkgutil import walk_packages
from threading import current_thread, main_thread
from types import FrameType, GenericAlias, ModuleType
from typing import Any

hidden = {"pandas", *(f"pyarrow._{name}fs" for name in ("azure", "gcs", "s3")), "pyarrow._hdfs"}
"""Modules that PyArrow imports if they are there."""
_ENVIRONMENT = {
    "NUMPY_MADVISE_HUGEPAGE": "0", "OPENBLAS_NUM_THREADS": "1",
    "ARROW_DEFAULT_MEMORY_POOL": "system",
}  # fmt: skip
"""Variables that NumPy and PyArrow read at their import. Child processes have them, too."""


_FIRST_USE = (
    "concurrent.futures.thread", "difflib", "dpkt.ieee80211", "encodings.idna", "hashlib",
    "google.protobuf.message", "importlib.resources", "opentelemetry.proto.metrics.v1.metrics_pb2",
    "pyarrow.acero", "tempfile",
)  # fmt: skip
"""Modules that functions of `dissector`, of PyArrow and of Python's sockets import."""


def prepare() -> None:
    """Prepare this process for one command; call it before the imports of the command."""
    _end_on_signals()
    for name, value in _ENVIRONMENT.items():  # those that the user has set remain
        os.environ.setdefault(name, value)
    sys.setswitchinterval(0.001)
    atexit.register(_skip_last_collection)
    sys.meta_path.insert(0, _HideModules())
    sys.meta_path.insert(0, _DeferModules())


def _skip_last_collection() -> None:
    if "_duckdb" not in sys.modules:  # it reports its objects that were not freed
        gc.freeze()


class Terminated(KeyboardInterrupt):
    """SIGTERM or SIGHUP; what reacts to Ctrl-C reacts to it, too."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number


_received: list[int] = []
"""The number of the latest signal. Not its exception, which would keep all frames alive."""
_deferring: list[bool] = []
"""Has an item while `deferred_interruption` is active."""


def _end_on_signals() -> None:
    """Let Ctrl-C raise KeyboardInterrupt, and SIGTERM and SIGHUP raise `Terminated`, unless the
    process ignores them."""
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):  # Windows has no SIGHUP
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _interrupt)
    sys.unraisablehook = _report_unless_signal


def _report_unless_signal(lost: sys.UnraisableHookArgs) -> None:
    """Report an exception that Python cannot raise, as in a callback of an import, except that of a
    signal: `raise_interruption` raises it again."""
    if not issubclass(lost.exc_type, KeyboardInterrupt):
        sys.__unraisablehook__(lost)


def _interrupt(number: int, frame: FrameType | None) -> None:
    _received[:] = [number]
    if not _deferring:
        raise_interruption()


def raise_interruption() -> None:
    """Raise the exception of the latest signal, if any, again.

    Code in C may lose it, as some imports do, or raise another one instead, as DuckDB does.
    """
    if _received:
        (number,) = _received
        raise KeyboardInterrupt if number == signal.SIGINT else Terminated(number)


@contextmanager
def deferred_interruption() -> Iterator[None]:
    """A context in which signals raise no exception. The exception follows at its end.

    Signals interrupt the main thread only: in another thread, the context has no effect.
    """
    if current_thread() is not main_thread():
        yield
        return
    _deferring.append(True)
    try:
        yield
    finally:
        _deferring.pop()
    if not _deferring:
        raise_interruption()


def forget_interruption() -> None:
    """The command continues after Ctrl-C."""
    _received.clear()


class _HideModules:
    """Reports modules as not installed."""

    def find_spec(self, fullname: str, *_: object) -> None:
        if fullname in hidden:
            raise ModuleNotFoundError(fullname, name=fullname)


def allow_pandas() -> None:
    """Let pandas be imported in this process."""
    hidden.discard("pandas")


class _NoArray:
    """`MaskedArray` before there is a masked array, and `NDArray`, which only annotates."""

    def __class_getitem__(cls, item: object) -> GenericAlias:
        return GenericAlias(cls, item)


class _NoPaths:
    """The files with certificates, for a process that uses no TLS."""

    cafile = capath = None


stand_ins: dict[str, dict[str, Any]] = {
    "numpy.ma": {
        "MaskedArray": _NoArray, "isMaskedArray": lambda value: False,
        "is_masked": lambda value: False,
    },
    "numpy.typing": {"NDArray": _NoArray},
    "numpy._typing": {"NDArray": _NoArray},
    "numpy._core._add_newdocs": {},
    "numpy._core._add_newdocs_scalars": {},
    "pyarrow.vendored.docscrape": {"NumpyDocString": lambda text: {"Parameters": ()}},
    "ssl": {"get_default_verify_paths": _NoPaths},
}  # fmt: skip
"""Modules that most commands only import, and the attributes that other packages use meanwhile."""


class _DeferModules:
    """Loads stand-ins for modules, which are imported when others of their attributes are used."""

    def find_spec(self, fullname: str, *_: object) -> ModuleSpec | None:
        loader: Any = self
        return ModuleSpec(fullname, loader) if fullname in stand_ins else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return ModuleType(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        vars(module).update(stand_ins[module.__name__])
        vars(module)["__getattr__"] = partial(_deferred_attribute, module)


def _deferred_attribute(stand_in: ModuleType, attribute: str) -> Any:
    """An attribute of the module that the stand-in stands for, which is imported now."""
    name = stand_in.__name__
    if attribute in ("__path__", "__file__"):  # the import system asks for them
        raise AttributeError(attribute)
    if stand_ins.pop(name, None) is not None:
        del sys.modules[name]
        vars(stand_in).update(vars(import_module(name)))
    return getattr(import_module(name), attribute)


def import_pipeline() -> None:
    """Import all modules that reading packets needs, including those imported on first use, and
    read the definitions of messages."""
    import dissector
    from dissector.pipeline import Pipeline
    from dissector.protocol import registry
    from dissector.tables import TABLES

    for module in walk_packages(dissector.__path__, "dissector."):
        with suppress(ImportError):  # of an extra that is not installed
            import_module(module.name)
    for name in _FIRST_USE:
        with suppress(ImportError):
            import_module(name)
    registry.read_files()
    Pipeline(None).tables(TABLES)
