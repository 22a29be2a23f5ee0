"""Sends requests of versions that no broker supports, and prints the responses.

python strangers.py HOST PORT
"""

import socket
import struct
import sys

host, port = sys.argv[1], int(sys.argv[2])


def ask(connection: socket.socket, key: int, version: int, correlation: int, body: bytes) -> bytes:
    """Send a request with header 1 or 2, which are equal up to here; return what arrives in 2 s."""
    header = struct.pack(">hhih", key, version, correlation, 8) + b"stranger"
    connection.sendall(struct.pack(">i", len(header + body)) + header + body)
    return connection.recv(65536)


def connect() -> socket.socket:
    """A new connection."""
    connection = socket.create_connection((host, port))
    connection.settimeout(2)
    return connection


# ApiVersions of the future: answered in version 0, error 35, and the connection goes on (KIP-511).
with connect() as connection:
    answer = ask(connection, 18, 99, 1, b"\0\x02x\x02y\0")
    assert struct.unpack(">ih", answer[4:10]) == (1, 35)
    assert ask(connection, 18, 3, 2, b"\0\x02x\x02y\0")[4:8] == struct.pack(">i", 2)

# Anything else that it does not know: the broker closes the connection.
for key, version in ((0, 0), (1, 99), (3, 99), (999, 0)):
    with connect() as connection:
        assert ask(connection, key, version, 3, b"\0" * 12) == b""
