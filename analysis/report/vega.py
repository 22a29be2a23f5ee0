"""What draws the charts: Vega, Vega-Lite and Vega-Embed as one script, out of vl-convert.

vl-convert puts the script together in a JavaScript engine of its own, which takes some seconds and
100 MB; so it is kept in the user's cache (``XDG_CACHE_HOME``, or ``~/.cache``) for the next report.
The name of the file has the version that it is of, and its hash: a file that is not whole is not
taken, and where nothing can be kept, nothing is.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from contextlib import suppress
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Final

VERSION: Final = version("vl-convert-python")


@cache
def vega() -> str:
    """The script, which defines `vegaEmbed`, ready to stand within HTML."""
    with suppress(OSError, RuntimeError, UnicodeDecodeError):  # also where there is no home
        for file in _folder().glob(f"vega-{VERSION}-*.js"):
            script = file.read_text("utf-8")
            if file.name == _name(script):
                return script
    script = _built()
    with suppress(OSError, RuntimeError):
        _keep(script)
    return script


def _built() -> str:
    import vl_convert

    script = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")
    # An HTML parser ends a script at its first end tag, even inside of a string.
    return script.replace("</script", "<\\/script")


def _keep(script: str) -> None:
    folder = _folder()
    folder.mkdir(parents=True, exist_ok=True)
    # Under its name only when it is whole, whoever else writes one at the same time.
    with tempfile.NamedTemporaryFile("w", encoding="utf-8", dir=folder, delete=False) as growing:
        growing.write(script)
    Path(growing.name).replace(folder / _name(script))


def _folder() -> Path:
    home = os.environ.get("XDG_CACHE_HOME")
    return (Path(home) if home else Path.home() / ".cache") / "kafka-dissector"


def _name(script: str) -> str:
    return f"vega-{VERSION}-{hashlib.sha256(script.encode()).hexdigest()[:32]}.js"
