"""Whose every bit of state is: what the isolation claim is about, declared beside the state (ARCHITECTURE section 7).

In `strict` sharing the state that a partition owns depends on that state and its own ports' inputs alone. A block's
`OWNERSHIP` says for each of its registers and memories who owns it; a test holds that the list is complete.

Used by: every block that holds state, elaborate.manifest.
"""

import enum
import fnmatch
from dataclasses import dataclass


class By(enum.Enum):
    """How the owner of a piece of state is found."""

    #: The same for everybody, and free of any tenant's doing: the wheel and what it turns, and what the operator sets.
    PUBLIC = "public"
    #: The partition whose number ends the name.
    NUMBER = "number"
    #: The partition of the operation in the same stage, named by the stage's head (`tag`), while that is valid.
    TAG = "tag"
    #: The partition whose base is in the row's address.
    ADDRESS = "address"
    #: The partition of the port that the block, or the number at the end of the name, belongs to.
    PORT = "port"
    #: The port that owned, in the cycle before, the bank whose number ends the name.
    LANE = "lane"
    #: Depends on all tenants and is visible to none: the trace port, counters, events, what the registers are read as.
    MANAGEMENT = "management"


@dataclass(frozen=True)
class Owned:
    """State whose names match `names` (shell pattern) and its owner. `tag`: for By.TAG, the head in the directory.
    `when`: the bit of the same block without which nobody looks at it.

    Of several declarations of a block that match a name, the first holds: `owner_of`.
    """

    names: str
    by: By
    tag: str = ""
    when: str = ""

    def matches(self, name: str) -> bool:
        return fnmatch.fnmatchcase(name, self.names)


def owner_of(component, name: str) -> Owned | None:
    """Whose a register or memory of a block is, as the block declares it; None if it does not."""
    return next((own for own in component.OWNERSHIP if own.matches(name)), None)
