"""Kafka network traffic: the public names of `dissector` and `analysis` in one package.

    import kafka_dissector as kd

    tables = kd.load("capture.pcap")    # pandas DataFrames by table name
    kd.latency("capture.pcap")          # an answer, and every other of `kd.ANSWERS`
    kd.open_capture("capture.pcap")     # exchanges one by one, or Arrow tables
    kd.decode_request(frame)            # a message without its capture

Names and the two packages are imported when they are first used, so that the import of this package
takes no time, and the command can prepare for Ctrl-C before.
"""

from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec, PathFinder
from os.path import dirname
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import analysis
    import dissector
    from analysis import *  # noqa: F403
    from analysis.functions import *  # noqa: F403 - mypy ignores `__all__ +=`
    from dissector import *  # noqa: F403

    __all__: list[str] = []
    __all__ += dissector.__all__
    __all__ += analysis.__all__
else:  # type checkers would take every name for an attribute

    def __getattr__(name: str) -> Any:
        import analysis
        import dissector

        if name == "__all__":
            return [*dissector.__all__, *analysis.__all__]
        for package in (dissector, analysis):
            if name in package.__all__:
                return getattr(package, name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    def __dir__() -> list[str]:
        return sorted({*__getattr__("__all__")})


_PACKAGES: Final = ("analysis", "dissector")
_FOLDER: Final = dirname(dirname(__file__))  # noqa: PTH120 - faster than pathlib


class _OwnPackages:
    """Finds the two packages in the folder of this one. A user's script is often ``analysis.py``,
    and Python searches the folder of the script first."""

    @staticmethod
    def find_spec(name: str, *_: Any) -> ModuleSpec | None:
        return PathFinder.find_spec(name, [_FOLDER]) if name in _PACKAGES else None


for _name in _PACKAGES:
    _module = sys.modules.get(_name)
    if _module and not hasattr(_module, "__all__"):
        raise ImportError(f"{_module} has the name of a package of kafka_dissector: rename it")
sys.meta_path.insert(sys.meta_path.index(PathFinder), _OwnPackages)
