"""The text in place of a secret, and texts without the credentials of URLs."""

from __future__ import annotations

import re
from typing import Final

REDACTED: Final = "[redacted]"

_URL: Final = re.compile(r"\w://\S+")
_PASSWORD: Final = re.compile(r"(?<=://)([^/?#:@]*):[^/]*@")
_PARAMETER: Final = re.compile(r"([?&][^=&#]*=)[^&#'\"]*?(?=:?$|[&#'\"])")


def without_credentials(text: str) -> str:
    """A text with the credentials of its URLs redacted: passwords (RFC 3986, section 3.2.1), and
    the values of parameters, which may be the signature of a presigned URL."""
    if "://" not in text:
        return text

    def redacted(url: re.Match[str]) -> str:
        named = _PASSWORD.sub(rf"\1:{REDACTED}@", url[0])
        return _PARAMETER.sub(rf"\1{REDACTED}", named)

    return _URL.sub(redacted, text)
