"""The command `kafka-dissector`, and `python -m kafka_dissector`."""

from __future__ import annotations

import signal


def main() -> int:
    """Run the command line. Ctrl-C ends the process without a traceback while it imports."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # until `analysis.startup.prepare`
    from analysis.cli import main as run

    return run()


if __name__ == "__main__":
    raise SystemExit(main())
