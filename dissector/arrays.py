"""`arrays`: a decorator for classes whose attributes are arrays that belong together.

Such a class is a dataclass without comparison and text, which arrays do not fit. Type checkers
refuse changes of its attributes; at run time nothing does. A frozen dataclass takes four times as
long to import, and longer to create: these classes take half of the time of both.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeVar, dataclass_transform

Class = TypeVar("Class")


@dataclass_transform(frozen_default=True, eq_default=False, field_specifiers=(field,))
def arrays(each: type[Class]) -> type[Class]:
    """A class of arrays."""
    return dataclass(slots=True, eq=False, repr=False)(each)
