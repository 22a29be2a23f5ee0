"""Benchmarks against other programs: `python -m bench`.

`inputs` makes large inputs by repeating small committed recordings of real Kafka traffic. The
project and other programs run as whole processes, in turn, on the same file: `peers`, `measure`.
`suite` defines the measurements, and `report` prints the results and writes `bench/RESULTS.md`.
`where` measures the stages inside one process. Nothing here asserts anything.
"""
