"""Index: random lookups, insertions and removals, one per cycle, with tags so short that they meet all the time."""

import pytest

from kvnode.models.golden.index import Index as GoldenIndex
from kvnode.models.spec.hashing import fold, whitening
from kvnode.rtl.layouts import Shapes
from kvnode.rtl.node.index import Index
from kvnode.verif.agents.bench import Bench, bench_test
from kvnode.verif.agents.fields import Fields
from kvnode.verif.benches.configs import config_of
from kvnode.verif.runner import run_bench

MODULE = "kvnode.verif.benches.test_index"
CYCLES = 6000
#: From stage 1 to stage 5.
STAGES = 4


@bench_test(max_cycles=CYCLES + 200)
async def sees_every_earlier_insertion_and_removal(dut):
    bench = Bench(dut)
    config, rng = config_of(bench.parameters["config"]), bench.random
    where = Fields(Shapes(config).where)
    parts = config.partitions
    bases = [base // config.ways for base in config.slot_bases]
    golden = [GoldenIndex(rows, config.ways, config.tag_bits, part.seed) for rows, part in zip(config.rows_log2, parts)]
    keys = [(rng.getrandbits(config.digest_bits), rng.randrange(config.models), rng.getrandbits(8), rng.getrandbits(4))
            for _ in range(bench.parameters["keys"])]  # fmt: skip
    # pair -> place. More entries than slots, so that rows fill up; the index does not mind.
    entries = [{} for _ in parts]
    counts = dict.fromkeys(("hit", "insert", "full", "remove", "after_remove"), 0)
    await bench.start(clear=1)
    for row in range(config.index_rows):
        bench.drive(clear_row=row)
        await bench.step()
    bench.drive(clear=0)
    pipeline, last_removed = [], None
    for cycle in range(CYCLES):
        # Phases of growth, of turnover and of decay; in each, bursts on one key.
        insert_weight, remove_weight = ((8, 1), (4, 4), (1, 6))[cycle // 300 % 3]
        number = rng.randrange(len(parts))
        key = keys[cycle // 5 % len(keys)] if cycle % 40 < 20 else rng.choice(keys)
        want = rng.choices(("insert", "remove", "look"), (insert_weight, remove_weight, 3))[0]
        digest, model, group, epoch = key
        bench.drive(
            s1_folded=fold(digest), s1_whitening=whitening(model, group, epoch), s1_seed=parts[number].seed,
            s1_base=bases[number], s1_mask=(1 << config.rows_log2[number]) - 1,
        )  # fmt: skip
        pipeline.append((number, key, want))
        expected = None
        bench.drive(insert=0, remove=0)
        if len(pipeline) > STAGES:
            number, key, want = pipeline.pop(0)
            index = golden[number]
            pair = index.place(*key)
            slot, place = index.find(pair), index.choose(pair)
            expected = slot, place, number
            counts["hit"] += slot is not None
            counts["full"] += slot is None and place is None
            counts["after_remove"] += pair == last_removed
            if want == "insert" and slot is None and place:
                new_slot = rng.randrange(parts[number].slots)
                index.insert(pair, place, new_slot)
                entries[number][pair] = place
                bench.drive(insert=1, insert_slot=new_slot)
                counts["insert"] += 1
            elif want == "remove" and entries[number]:
                # Often the pair that is looked up right now or behind: that is where the hazards are.
                behind = [index.place(*k) for n, k, _ in pipeline if n == number and index.place(*k) in entries[number]]
                gone = rng.choice(behind) if behind and rng.getrandbits(1) else rng.choice(list(entries[number]))
                table, row, way = entries[number].pop(gone)
                index.remove(gone, (table, row, way))
                bench.drive(remove=1, remove_where=where.pack(table=table, row=row, way=way), remove_base=bases[number])
                counts["remove"] += 1
                last_removed = gone
        await bench.step()
        if expected:
            slot, place, number = expected
            at = f"cycle {cycle}, partition {number}"
            assert bench.get("s5_hit") == (slot is not None), at
            if slot is not None:
                assert bench.get("s5_slot") == slot, at
            else:
                assert bench.get("s5_room") == (place is not None), at
                if place is not None:
                    choice = where.unpack(bench.get("s5_choice"))
                    assert (choice["table"], choice["row"], choice["way"]) == place, at
    assert all(count > CYCLES // 200 for count in counts.values()), counts


@pytest.mark.parametrize("config,keys", [("tiny", 20), ("quad", 60)])
def test_index_back_to_back(config, keys):
    run_bench(Index(config_of(config)), MODULE, parameters={"config": config, "keys": keys})
