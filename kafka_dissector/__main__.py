"""`python -m kafka_dissector` is the command `kafka-dissector`."""

from analysis.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
