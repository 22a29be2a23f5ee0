"""The subject of a certificate as text (RFC 5280, section 4.1; RFC 4514).

Up to TLS 1.2 a server sends its certificates unencrypted. Only the subject of the first one, which
is the server's own, is read. It is not validated.
"""

from __future__ import annotations

from collections.abc import Iterator

from dissector.errors import DecodeError

SEQUENCE, VERSION = 0x30, 0xA0
BMP_STRING = 0x1E
ATTRIBUTES = {
    bytes.fromhex("550403"): "CN",
    bytes.fromhex("550406"): "C",
    bytes.fromhex("550407"): "L",
    bytes.fromhex("550408"): "ST",
    bytes.fromhex("550409"): "STREET",
    bytes.fromhex("55040a"): "O",
    bytes.fromhex("55040b"): "OU",
    bytes.fromhex("0992268993f22c640101"): "UID",
    bytes.fromhex("0992268993f22c640119"): "DC",
}
"""Names of attributes, by their object identifiers (RFC 4514, section 3)."""


def subject(message: bytes) -> str:
    """The subject of the first certificate in a Certificate message of TLS 1.2 (RFC 5246, 7.4.2).

    Raises DecodeError if there is none.
    """
    size = int.from_bytes(message[3:6], "big")
    tag, certificate = next(_elements(message[6 : 6 + size]), (0, b""))
    signed = next(_elements(certificate), (0, b""))[1] if tag == SEQUENCE else b""
    fields = [content for tag, content in _elements(signed) if tag != VERSION]
    if len(fields) < 5:
        raise DecodeError("the certificate has no subject", offset=0)
    sets = list(_contents(fields[4]))  # after serial number, algorithm, issuer and validity
    return ",".join("+".join(map(_attribute, _contents(each))) for each in reversed(sets))


def _contents(data: bytes) -> Iterator[bytes]:
    return (content for _, content in _elements(data))


def _elements(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Tag and content of each element in DER (X.690); lengths of up to three bytes."""
    at = 0
    while at < len(data):
        tag, first = data[at], int.from_bytes(data[at + 1 : at + 2], "big")
        width = first & 0x7F if first & 0x80 else 0
        begin = at + 2 + width
        length = int.from_bytes(data[at + 2 : begin], "big") if width else first
        if width > 3 or begin + length > len(data):
            raise DecodeError("the certificate is truncated", offset=at)
        yield tag, data[begin : begin + length]
        at = begin + length


def _attribute(data: bytes) -> str:
    """An attribute as ``CN=name``."""
    (_, kind), (tag, value), *_ = [*_elements(data), (0, b""), (0, b"")]
    code = "utf-16-be" if tag == BMP_STRING else "utf-8"
    text = value.decode(code, "backslashreplace")
    for special in '\\,+"<>;':
        text = text.replace(special, "\\" + special)
    text = text.replace("\0", "\\00")
    text = "\\" + text if text[:1] in ("#", " ") else text
    text = text[:-1] + "\\ " if len(text) > 1 and text[-1] == " " else text
    return f"{ATTRIBUTES.get(kind) or _dotted(kind)}={text}"


def _dotted(kind: bytes) -> str:
    """An object identifier in numbers (X.690, section 8.19)."""
    numbers, number = [], 0
    for byte in kind:
        number = number << 7 | byte & 0x7F
        if not byte & 0x80:
            numbers.append(number)
            number = 0
    if numbers:  # the first number combines two
        top = min(numbers[0] // 40, 2)
        numbers[:1] = [top, numbers[0] - 40 * top]
    return ".".join(map(str, numbers))
