"""Many devices and any chunking: the same bits on 1, 2 and 4 forced CPU devices.

With the compiler flags of `start_jax` from 2 devices on, which is the fewest that it sets.
"""

from experiments.benchmarks.children import run_script
from experiments.benchmarks.harness import Row, Tell

NAME = "devices"
TITLE = "Bits on several devices"

SCRIPT = """
import hashlib, json, sys
import jax
from experiments.benchmarks.laws import with_lanes
from simworlds.catalogue import load
from simworlds.ensemble import Readout, Request, measure
from simworlds.instance import draw_instance
from simworlds.protocol import Protocol, Segment

lanes, digests = int(sys.argv[1]), {}
for name in sys.argv[2].split(","):
    world = load(name)
    instance = draw_instance(with_lanes(world, lanes) if lanes else world, 0)
    requests = [
        Request(Protocol((Segment(n, {"u0": 0.6}),)), ("benchmark", n), Readout(0, 2, n, sd=n == 9))
        for n in (9, 14)
    ]
    found = measure(instance, requests, 300)
    digests[name] = hashlib.sha256(found.values.tobytes() + found.branch.tobytes()).hexdigest()
print(json.dumps({"devices": len(jax.devices()), "digests": digests}))
"""


def digests(devices: int, worlds: str, *, lanes: int = 0, plain: bool = False) -> dict[str, str]:
    """A digest of each world's statistics on some devices, in its own chunk width or in another.

    Raises:
        RuntimeError: if the process did not see as many devices as it was to.
    """
    found = run_script(SCRIPT, str(lanes), worlds, devices=devices, plain=plain)
    if found["devices"] != devices:
        raise RuntimeError(f"{devices} devices were asked for, but there are {found['devices']}")
    return found["digests"]


def rows(quick: bool, tell: Tell) -> list[Row]:
    """How many digests differ, of programs compiled as `start_jax` has it and as JAX does by itself."""
    worlds = "C2" if quick else "C2,B2,A4,B1,D1"
    made = []
    ways = ((False, (2, 4)), (True, (1, 2, 4)))
    for plain, counts in ways[: 1 if quick else 2]:
        found = {}
        for devices, lanes in (*((count, 0) for count in counts), (2, 96)):
            name = f"{devices} devices" + (f", chunks of {lanes}" if lanes else "")
            tell(f"devices: {name}")
            found[name] = digests(devices, worlds, lanes=lanes, plain=plain)
        first, *others = found.values()
        differing = sum(other[name] != first[name] for other in others for name in first)
        how = "plain JAX" if plain else "start_jax"
        made.append(
            Row(
                f"{' and '.join(map(str, counts))} devices, other chunks ({how})",
                "bit-equal" if differing == 0 else f"{differing} digests differ",
                "bit-equal",
                float(differing),
                0.0,
                detail=found,
                note=f"worlds {worlds}, 300 clones, two protocols",
            )
        )
    return made
