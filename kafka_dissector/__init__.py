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

from typing import TYPE_CHECKING, Any

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
