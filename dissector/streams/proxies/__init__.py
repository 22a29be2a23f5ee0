"""What proxies add before the first message.

proxy_protocol  PROXY headers
handshakes      handshakes with SOCKS 5 and HTTP CONNECT proxies
skipping        the segments of streams without them
"""
