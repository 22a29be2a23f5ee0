"""Print the pins of `make test-oldest`: the oldest packages that pyproject.toml allows.

The tools that run the tests are those of requirements.lock. Python's standard library alone is
needed here: this runs before packages are installed.
"""

from __future__ import annotations

import re
import tomllib
from itertools import chain
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[1]
_REQUIREMENT: Final = re.compile(r"([\w.-]+)(?:>=([\w.]+))?")


def lower_bounds(project: dict[str, Any]) -> dict[str, str]:
    """Lower bounds of dependencies and extras, by name of package."""
    lines = chain(project["dependencies"], *project["optional-dependencies"].values())
    return dict(map(requirement, lines))


def requirement(line: str) -> tuple[str, str]:
    """Name and lower bound, which is empty where it is missing. Raises ValueError for others."""
    match = _REQUIREMENT.fullmatch(line)
    if match is None:
        raise ValueError(f"{line}: not of the form NAME or NAME>=VERSION")
    return normalized(match[1]), match[2] or ""


def normalized(name: str) -> str:
    """The name of a package as PEP 503 compares it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def pins() -> dict[str, str]:
    """Versions of requirements.lock, by name of package."""
    text = (ROOT / "requirements.lock").read_text()
    return {normalized(n): v for n, v in re.findall(r"^([\w.-]+)==(\S+)$", text, re.MULTILINE)}


def main() -> None:
    document = tomllib.loads((ROOT / "pyproject.toml").read_text())
    oldest = lower_bounds(document["project"])
    groups = document["dependency-groups"].values()
    direct = {requirement(line)[0] for line in chain(*groups) if isinstance(line, str)}
    tools = {name: pins()[name] for name in direct - {*oldest}}
    for name, version in sorted((tools | oldest).items()):
        print(f"{name}=={version}")


if __name__ == "__main__":
    main()
