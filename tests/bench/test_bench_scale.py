"""What `evergrad bench scale` reads from programs and computes from that."""

import json

import pytest

from evergrad.bench.projection import Assumptions, Work, all_reduce_seconds, project
from evergrad.bench.traffic import Move, moves
from tests.training_helpers import succeed

PROGRAM = """HloModule jit_f

%add (x: f32[], y: f32[]) -> f32[] {
  ROOT %sum = f32[] add(%x, %y)
}

%inner (state: (f32[8], s32[])) -> (f32[8], s32[]) {
  %g = f32[100]{0} all-reduce(%a), channel_id=1, replica_groups={{0,1}}, to_apply=%add
  ROOT %out = (f32[8], s32[]) tuple(%b, %c)
}

%more (state: (f32[8], s32[])) -> pred[] {
  ROOT %less = pred[] compare(%i, %n), direction=LT
}

%rare (state: f32[8]) -> f32[8] {
  ROOT %pair = (f64[2,3]{1,0}, pred[4]{0}) all-gather(%d, %e), dimensions={0}
}

%outer (state: (f32[8], s32[])) -> (f32[8], s32[]) {
  %r = f32[8] conditional(%p, %x, %y), branch_computations={%rare, %rest}
  ROOT %w = (f32[8], s32[]) while(%t), condition=%more, body=%inner
}

ENTRY %main (x: f32[8]) -> f32[8] {
  %w = (f32[8], s32[]) while(%t), condition=%more, body=%outer
  ROOT %all = bf16[16]{0} all-gather(%l), dimensions={0}
}
"""


def test_collective_operations_are_found_with_their_size_and_in_which_loop_they_stand():
    assert sorted(moves(PROGRAM), key=lambda move: move.loops) == [
        Move("all-gather", 32, 0),
        Move("all-gather", 52, 1),
        Move("all-reduce", 400, 2),
    ]


def test_an_all_reduce_costs_what_a_ring_costs():
    a = Assumptions(inside_bandwidth=1e9, inside_latency=0, outside_bandwidth=1e8, outside_latency=0, node=2)
    assert all_reduce_seconds(1_000_000, 1, a) == 0
    assert all_reduce_seconds(1_000_000, 2, a) == pytest.approx(1e-3)
    assert all_reduce_seconds(1_000_000, 4, a) == pytest.approx(1e-3 + 5e-3)  # half of it to the other node and back


def test_more_accelerators_wait_longer_and_none_is_better_than_perfect():
    work = Work(lanes=32, flops=7.4e7, payload=680_136)
    rows = project(work, (1, 8, 64, 512), Assumptions())
    efficiencies = [row["efficiency"] for row in rows]
    assert efficiencies[0] == 1
    assert efficiencies == sorted(efficiencies, reverse=True)
    assert [row["lanes"] for row in rows] == [32, 256, 2048, 16384]


@pytest.mark.slow
def test_a_quick_run(tmp_path):
    succeed("bench", "scale", "--quick", "--json", tmp_path / "scale.json")
    found = json.loads((tmp_path / "scale.json").read_text())
    assert [(row["devices"], row["processes"]) for row in found["measured"]] == [(2, 1), (4, 1), (2, 2)]
    for row in found["measured"]:
        assert row["steps_per_second"] > 0
        assert [move["kind"] for move in row["moved"]["each_step"]] == ["all-reduce"]
    assert [row["devices"] for row in found["projection"]["rows"]] == [8, 64, 512]
