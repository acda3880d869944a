"""python -m kvnode.verif.mutation [--count N] [--seed S] [--fast]: the mutants of the node.

Writes docs/mutation.md and build/mutate.json.

It can be stopped at any time and goes on where it was: what is known is kept under build/mutation, by netlist.
"""

import argparse
import json
import sys
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from kvnode.models.spec.config import preset

from .campaign import Campaign, try_mutant
from .equivalence import Proofs
from .netlist import mutants_of, netlist_of
from .report import fate, load_reasons, markdown, summary
from .stimuli import FAST, STRONG

CHECKOUT = Path(__file__).resolve().parents[2]
COUNT, SEED = 600, 1
PAGE = CHECKOUT / "docs" / "mutation.md"


def main(arguments: list[str] | None = None) -> int:
    """Command line; the exit code is 1 if the node without a mutant does not live through everything."""
    parser = argparse.ArgumentParser(prog="python -m kvnode.verif.mutation", description="how good the tests are")
    parser.add_argument("--count", type=int, default=COUNT, help=f"mutants at least, over all blocks (default {COUNT})")
    parser.add_argument("--seed", type=int, default=SEED, help=f"of the sample (default {SEED})")
    parser.add_argument("--fast", action="store_true", help="the short trials only, no proofs, and no page")
    parser.add_argument("--preset", default="tiny")
    parser.add_argument("--out", type=Path, default=CHECKOUT / "build" / "mutation", help="where to keep what is known")
    parser.add_argument("--json", type=Path, default=CHECKOUT / "build" / "mutate.json", help="the figures")
    parser.add_argument("--page", type=Path, default=PAGE, help="the page to write")
    options = parser.parse_args(arguments)
    console = Console(stderr=True)
    config = preset(options.preset)
    then = () if options.fast else STRONG
    with console.status("netlist"):
        netlist = netlist_of(config, options.out)
        mutants = mutants_of(netlist, options.count, options.seed)
    with console.status("simulator") as status:
        campaign = Campaign(config, netlist, mutants, f"{options.count}-{options.seed}")
        campaign.build(lambda stage: status.update(f"simulator: {stage}"))
    with console.status("the node without a mutant"):
        alone = try_mutant(config, campaign.text, 0, (*FAST, *then))
    if alone.killed:
        console.print(f"without a mutant, {alone.killed_by} fails: {alone.how}")
        return 1
    reasons = load_reasons()
    proofs = None if options.fast else Proofs(netlist)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
               TimeRemainingColumn())  # fmt: skip
    left = 0
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("mutants", total=len(mutants))
        for mutant in campaign.walk(then=then, proofs=proofs):
            if fate(mutant, campaign.verdicts[mutant.number], reasons) == "left":
                left += 1
                progress.console.print(f"{mutant.number}: {mutant.name} ({', '.join(mutant.lines)}) lives")
            progress.update(task, advance=1, description=f"mutants, {left} left")
    command = f"python -m kvnode.verif.mutation --count {options.count} --seed {options.seed}"
    if options.preset != "tiny":
        command += f" --preset {options.preset}"
    told = summary(mutants, campaign.verdicts, reasons)
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
    print(f"{told['mutants']} mutants, {told['killed']} killed, {told['equivalent']} equal, {told['excused']} excused, "
          f"{told['left']} left: {told['score']:.1%}")  # fmt: skip
    if not options.fast:
        source = f"the preset `{config.name}` with sharing `{config.sharing}`, netlist {netlist.key}"
        options.page.write_text(markdown(mutants, campaign.verdicts, reasons, command, source), encoding="utf-8")
        console.print(f"{options.page}")
    stale = sorted(reasons.keys() - {mutant.name for mutant in mutants})
    if stale:
        console.print(f"survivors.yaml speaks of {len(stale)} mutants that are not in this sample")
    return 0


if __name__ == "__main__":
    sys.exit(main())
