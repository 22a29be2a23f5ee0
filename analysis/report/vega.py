"""The script that draws charts: Vega, Vega-Lite and Vega-Embed, bundled by vl-convert.

vl-convert bundles the script in its own JavaScript engine, which takes some seconds and 100 MB. So
the script is kept in the user's cache (``XDG_CACHE_HOME`` or ``~/.cache``) for the next report. The
file name contains the version and a hash of the script, so an incomplete file is not used. If the
cache is not writable, the script is not kept.
"""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Final

from analysis.export.files import output_file

VERSION: Final = version("vl-convert-python")


@cache
def vega() -> str:
    """The script, which defines `vegaEmbed`, in a form that HTML can contain."""
    with suppress(OSError, RuntimeError, UnicodeDecodeError):  # for example without a home folder
        for file in _folder().glob(f"vega-{VERSION}-*.js"):
            script = file.read_text("utf-8")
            if file.name == _name(script):
                return script
    script = _built()
    with suppress(OSError, RuntimeError), output_file(_folder() / _name(script)) as sink:
        sink.write(script.encode())
    return script


def _built() -> str:
    import vl_convert

    script = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")
    # An HTML parser ends a script at the first end tag, even inside a string.
    return script.replace("</script", "<\\/script")


def _folder() -> Path:
    home = os.environ.get("XDG_CACHE_HOME")
    return (Path(home) if home else Path.home() / ".cache") / "kafka-dissector"


def _name(script: str) -> str:
    return f"vega-{VERSION}-{hashlib.sha256(script.encode()).hexdigest()[:32]}.js"
