"""TLS 1.2 and 1.3, decrypted with the secrets of a key log.

Bytes in, values out: this room knows no packets, files or clocks. A `TlsSession` takes what the two
ends of a connection sent, in order, and gives what they said.

keylog       secrets, by client random (NSS key log format)
suites       cipher suites, and what they are made of
hellos       what ClientHello and ServerHello agree on
certificates whom a certificate names
events       what comes out: facts, what was said, what went wrong
records      records out of the bytes of one end, over holes
schedule     which secret comes next, from the handshake and the key log
protection   keys and ciphers; the only module that needs `cryptography`
session      both ends: handshake, keys, plaintext
"""

from dissector.tls.events import Plaintext, TlsFacts, TlsProblem
from dissector.tls.keylog import KeyLog
from dissector.tls.session import TlsSession, has_cryptography

__all__ = ["KeyLog", "Plaintext", "TlsFacts", "TlsProblem", "TlsSession", "has_cryptography"]
