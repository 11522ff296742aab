"""Peak memory of `measure`: what many clones add, whatever the horizon, and the whole of a million clones.

In a process of its own: a few clones compile, what is free goes back to the system, the high-water mark of
resident memory is set back, then many clones run. The law is B2, whose instance is the first draw of seed 0.
"""

from collections.abc import Sequence
from pathlib import Path

from experiments.benchmarks.children import run_script
from experiments.benchmarks.harness import Row, Tell, not_measured

NAME = "memory"
TITLE = "Peak memory of `measure`"

ADDED_MIB, TOTAL_MIB = 60.0, 2048.0
INDEPENDENT = 1.2  # four times the ticks may add a fifth, or a few MiB of noise
NOISE_MIB = 8.0

SCRIPT = """
import ctypes, gc, json, sys
from simworlds.catalogue import load
from simworlds.ensemble import Readout, Request, measure
from simworlds.protocol import Protocol, Segment

def status(field):
    with open("/proc/self/status") as file:
        line = next(line for line in file if line.startswith(field))
    return int(line.split()[1]) / 1024

def forget():
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")
    return status("VmRSS")

instance = load(sys.argv[1]).instance(0, redraws=0)

def go(ticks, clones):
    readout = Readout(0, ticks // 2, ticks, False)
    request = Request(Protocol((Segment(ticks, {"u0": 0.6}),)), ("benchmark", "memory"), readout)
    return measure(instance, [request], clones).values

found = []
go(64, 600)
for pair in sys.argv[2:]:
    ticks, clones = (int(number) for number in pair.split("x"))
    before = forget()
    values = go(ticks, clones)
    found.append({"before": before, "after": status("VmHWM")})
    assert values.shape == (1, clones)
    del values
print(json.dumps(found))
"""


def peaks(runs: Sequence[tuple[int, int]], world: str = "B2") -> list[dict[str, float]]:
    """Resident MiB before each run of (ticks, clones), and the peak during it, in a process of their own."""
    return run_script(SCRIPT, world, *(f"{ticks}x{clones}" for ticks, clones in runs))


def rows(quick: bool, tell: Tell) -> list[Row]:
    """Memory added by 10^5 clones, its dependence on the horizon, and the peak of 10^6 clones."""
    targets = (f"at most {ADDED_MIB:g} MiB added", "four times the ticks add no more", "under 2 GiB in all")
    names = ("memory of 10^5 clones x 256 ticks", "memory over the horizon", "peak memory of 10^6 clones")
    if not Path("/proc/self/clear_refs").exists():
        why = "this system has no /proc/self/clear_refs to set the high-water mark back with"
        limits = (ADDED_MIB, 1.0, TOTAL_MIB)
        return [not_measured(*row, why) for row in zip(names, targets, limits, strict=True)]
    many, most, ticks = (20_000, 100_000, 16) if quick else (100_000, 1_000_000, 64)
    tell(f"memory: up to {most:,} clones")
    short, long, large = peaks([(64, many), (256, many), (ticks, most)])
    added = {64: short["after"] - short["before"], 256: long["after"] - long["before"]}
    scale = "; quick, fewer clones" if quick else ""
    return [
        Row(
            names[0],
            f"{added[256]:.1f} MiB added",
            targets[0],
            added[256],
            ADDED_MIB,
            detail={"clones": many, "added_mib": added[256]},
            note=f"B2, {many:,} clones{scale}",
        ),
        Row(
            names[1],
            f"{added[64]:.1f} MiB at 64 ticks, {added[256]:.1f} at 256",
            targets[1],
            added[256] / (INDEPENDENT * (added[64] + NOISE_MIB)),
            1.0,
            detail={"clones": many, "added_mib": {str(n): mib for n, mib in added.items()}},
            note=f"met if 256 ticks add at most {INDEPENDENT:g} times what 64 do and {NOISE_MIB:g} MiB more",
        ),
        Row(
            names[2],
            f"{large['after']:.0f} MiB in all, {large['after'] - large['before']:.1f} added",
            targets[2],
            large["after"],
            TOTAL_MIB,
            detail={"clones": most, "peak_mib": large["after"], "before_mib": large["before"]},
            note=f"B2, {most:,} clones x {ticks} ticks{scale}",
        ),
    ]
