"""TLS handshakes that fail, three times each. Prints the client's address and error as JSON.

python handshakes.py AUTHORITY EXPIRED_AUTHORITY
"""

import asyncio
import json
import socket
import ssl
import struct
import sys

REQUEST = struct.pack(">ihhih", 14, 18, 0, 1, 4) + b"made"
"""ApiVersions 0."""
VERSIONS = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}
trusted, expired = sys.argv[1:]


def context(version: str, authority: str = trusted) -> ssl.SSLContext:
    made = ssl.create_default_context(cafile=authority)
    made.minimum_version = made.maximum_version = VERSIONS[version]
    return made


def attempt(case: str, port: int, secured: ssl.SSLContext | None) -> None:
    """Connect, send a request, and read until the broker closes."""
    error = "closed"
    with socket.create_connection(("127.0.0.1", port)) as connection:
        client = f"127.0.0.1:{connection.getsockname()[1]}"
        try:
            if secured is not None:
                connection = secured.wrap_socket(connection, server_hostname="127.0.0.1")
            connection.sendall(REQUEST)
            while connection.recv(4096):
                pass
        except (OSError, ssl.SSLError) as problem:
            error = getattr(problem, "reason", None) or type(problem).__name__
        connection.close()
    print(
        json.dumps({"case": case, "client": client, "broker": f"127.0.0.1:{port}", "error": error})
    )


async def attempt_silently(case: str, port: int, secured: ssl.SSLContext) -> None:
    """As asyncio does: it closes without an alert."""
    connection = socket.create_connection(("127.0.0.1", port))
    client = f"127.0.0.1:{connection.getsockname()[1]}"
    error = "none"
    try:
        await asyncio.open_connection(sock=connection, ssl=secured, server_hostname="127.0.0.1")
    except ssl.SSLError as problem:
        error = problem.reason
    print(
        json.dumps({"case": case, "client": client, "broker": f"127.0.0.1:{port}", "error": error})
    )


for _ in range(3):
    attempt("no client certificate", 9092, context("1.3"))
    attempt("no client certificate, TLS 1.2", 9092, context("1.2"))
    attempt("expired certificate", 9093, context("1.3", expired))
    attempt("expired certificate, TLS 1.2", 9093, context("1.2", expired))
    asyncio.run(attempt_silently("unknown authority, no alert", 9094, context("1.2", expired)))
    attempt("no common version", 9094, context("1.3"))
    attempt("client without TLS", 9094, None)
    attempt("broker without TLS", 9095, context("1.3"))
