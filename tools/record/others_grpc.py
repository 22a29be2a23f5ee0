"""A gRPC server and its client, for Debian's python3-grpcio: `serve PORT`, `call PORT`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc


class Echo(grpc.GenericRpcHandler):
    """Returns each request as its response; /echo.Echo/Many returns it five times."""

    def service(self, details: Any) -> Any:
        """The handler of a call, by its name."""
        if details.method.endswith("Many"):
            return grpc.unary_stream_rpc_method_handler(many)
        return grpc.unary_unary_rpc_method_handler(lambda request, context: request)


def many(request: bytes, context: Any) -> Iterator[bytes]:
    """The same, five times."""
    for _ in range(5):
        yield request


def main() -> None:
    """Serve until killed, or call."""
    what, port = sys.argv[1:]
    where = f"127.0.0.1:{port}"
    if what == "serve":
        server = grpc.server(ThreadPoolExecutor(2))
        server.add_generic_rpc_handlers((Echo(),))
        server.add_insecure_port(where)
        server.start()
        server.wait_for_termination()
    with grpc.insecure_channel(where) as channel:
        for number in range(20):
            channel.unary_unary("/echo.Echo/One")(b"\0\0\0\x10\0\3\0\1" * number)
        list(channel.unary_stream("/echo.Echo/Many")(b"\x0a\x04word"))


if __name__ == "__main__":
    main()
