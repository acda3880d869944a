"""Yosys as a command, out of the native library that the PyPI package `pyosys` ships: as much of one as sby needs.

    python -m kvnode.verif.formal.yosys [-q] [-l LOG] [-ql LOG] [-p COMMAND] [SCRIPT.ys]...

Used by: tools.
"""

import os
import sys


def main(arguments: list[str]) -> int:
    """Runs commands and scripts in their order; returns the exit code."""
    from pyosys import libyosys

    commands: list[str] = []
    prefix = "tee "
    rest = iter(arguments)
    for argument in rest:
        if argument in ("-V", "--version"):
            print(libyosys.yosys_maybe_version())
            return 0
        if argument in ("-q", "-ql"):
            prefix += "-q "
        if argument in ("-l", "-ql"):
            prefix += f"-o {next(rest)} "
        elif argument == "-p":
            commands.append(next(rest))
        elif not argument.startswith("-"):
            commands.append(f"script {argument}")
        elif argument not in ("-Q", "-T", "-q"):
            print(f"yosys: the option {argument!r} is not known here", file=sys.stderr)
            return 2
    design = libyosys.Design()
    try:
        for command in commands:
            libyosys.run_pass(prefix + command, design)
    except Exception as error:
        print(f"ERROR: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    code = main(sys.argv[1:])
    sys.stdout.flush()
    # Tearing the library down takes longer than the work, and sometimes fails.
    os._exit(code)
