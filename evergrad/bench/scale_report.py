"""The figures of `evergrad bench scale` for people."""

from typing import Any

from rich.table import Table


def tables(result: dict[str, Any]) -> list[Table]:
    s = result["setting"]
    about = (
        f"{s['units']} units, {s['batch']} lanes, OK(rank={s['rank']}, window={s['window']}), {result['cores']} cores"
    )
    measured = Table("devices", "processes", "steps/s", "one device", "cost", "bytes a step", title=about)
    for row in result["measured"]:
        one, cost = row.get("one_device_steps_per_second"), row.get("cost")
        measured.add_row(
            str(row["devices"]),
            str(row["processes"]),
            f"{row['steps_per_second']:.4g}",
            "–" if one is None else f"{one:.4g}",
            "–" if cost is None else f"{cost:+.1%}",
            f"{sum(move['bytes'] for move in row['moved']['each_step']):,}",
        )
    projected = Table("accelerators", "lanes", "steps/s", "all-reduce, µs", "efficiency", title="projection")
    for row in result["projection"]["rows"]:
        figures = f"{row['steps_per_second']:,.0f}", f"{row['all_reduce_us']:.0f}", f"{row['efficiency']:.0%}"
        projected.add_row(str(row["devices"]), f"{row['lanes']:,}", *figures)
    assumed = ", ".join(f"{name} {value:g}" for name, value in result["projection"]["assumptions"].items())
    projected.caption = f"assumed: {assumed}"
    return [measured, projected]
