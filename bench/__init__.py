"""How fast, and against whom: `python -m bench`.

Inputs are small committed recordings of real Kafka traffic, repeated until they are large:
`inputs`. The project and its peers run as whole processes, in turn, on the same file: `peers`,
`measure`. `suite` is what is run, `report` says what came out, on the terminal and in
`bench/RESULTS.md`. `where` is the other half: inside one process, what a packet and a message cost
in each stage. Nothing here asserts anything.
"""
