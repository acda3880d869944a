"""Where the real traces are. They are not part of the repository: the generator stands in where they are missing."""

import os
from pathlib import Path

TRACES_VARIABLE = "KVNODE_TRACES"


def traces_folder() -> Path:
    """The folder of real traces: `$KVNODE_TRACES`, else `../shared/traces` beside the checkout. It may not exist.

    Used by `find_trace` and by messages that say where a trace was looked for.
    """
    named = os.environ.get(TRACES_VARIABLE)
    if named:
        return Path(named)
    checkout = Path(__file__).resolve().parents[2]
    return checkout.parent / "shared" / "traces"


def find_trace(name: str) -> Path | None:
    """The file of a real trace, or None where it is missing.

    `name` is a file name or its beginning (`"mooncake_conversation"`); of several matches the first by name is meant.
    Used by the tests, the benches and the command line.
    """
    folder = traces_folder()
    if not folder.is_dir():
        return None
    return next((path for path in sorted(folder.iterdir()) if path.name.startswith(name)), None)
