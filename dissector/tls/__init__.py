"""TLS 1.2 and 1.3, decrypted with the secrets of a key log.

Bytes in, values out: this package has no packets, files or clocks. A `TlsSession` takes the bytes
of both ends of a connection, in order, and returns their plaintext.

keylog         secrets by client random (NSS key log format)
keylog_source  reads secrets from a key log file and from captures
suites         cipher suites and their parts
hellos         parses ClientHello and ServerHello
alerts         names of alerts
certificates   the subject of a certificate
events         results: handshake facts, plaintext, problems
record_layer   TLS records from the bytes of one end, across holes
schedule       selects the next secret, by handshake and key log; finds what a lost hello contained
protection     keys and ciphers; the only module that needs `cryptography`
side           one end of a connection: records, epoch, handshake messages
unkeyed        follows an encrypted handshake without keys
handshake      what both ends agree on: hellos, cipher suite, key schedule, early data
session        one connection: its records, plaintext and problems
"""

from dissector.tls.events import HOLE, Plaintext, TlsFacts, TlsProblem
from dissector.tls.keylog import KeyLog

__all__ = ["HOLE", "KeyLog", "Plaintext", "TlsFacts", "TlsProblem"]
