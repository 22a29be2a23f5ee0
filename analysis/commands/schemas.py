"""The option ``--schema-registry`` of commands that show keys and values."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from dissector.embedded.records import Decode

on_schema_registry = click.option(
    "--schema-registry", "registry", metavar="FOLDER|URL",
    help="Decode keys and values in Confluent's wire format with the schemas of a registry, or of "
    "a folder with files such as 42.avsc (extra schemas).",
)  # fmt: skip
"""A decorator; the parameter is ``registry``."""


def decoder(registry: str | None) -> Decode | None:
    """The decoder of the option's value. Raises DissectorError for an invalid one."""
    if registry is None:
        return None
    from analysis.schemas.registry import SchemaRegistry

    return SchemaRegistry(registry)
