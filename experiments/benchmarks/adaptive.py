"""Ensembles against diffrax under vmap: fixed steps, and adaptive ones on a spiky law.

Fixed: Lorenz 63 by RK4, against `diffrax.diffeqsolve` with the same tableau and the same steps, and with
Tsitouras' pair at steps so long that its error is no larger than ours. Adaptive: a Van der Pol oscillator
whose clones differ in stiffness and start, so that they take unlike steps, by `measure_adaptive` against
Tsitouras' pair with diffrax's controller at the same tolerances, and against the same algorithm in scalar C
(`kernels/adaptive.c`).

Diffrax runs in two forms. Plain is what its documentation shows: the state one array, `jax.vmap`, where JAX
puts it. Tuned is what we could make of it: the state as scalars, and each device at work on its share of the
clones. Both integrate no more than the one sensor that is asked for, are spared gauges and changes of drives,
and add the same sensor noise. The verdict is on the plain form, as the target was set; the tuned form stands
beside it. Errors are against the adaptive path in double precision, without sensor noise.
"""

import ctypes
import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, PartitionSpec

from experiments.benchmarks.harness import (
    Row,
    Tell,
    Timing,
    c_function,
    on_all_cores,
    race,
    ratio,
)
from experiments.benchmarks.laws import SIGMA, TICKS, Lorenz63, bench_instance
from simworlds.adaptive import measure_adaptive
from simworlds.ensemble import Readout, Request, measure
from simworlds.instance import Instance
from simworlds.integrate import RK4, begin
from simworlds.keys import Draws, Noise, Words, bits, clone_words, normal_from, role_words
from simworlds.protocol import Protocol, Segment
from simworlds.reference import reference_readings
from simworlds.world import Drive, Grammar, OdeWorld, Sensor

NAME = "adaptive"
TITLE = "Fixed and adaptive steps against diffrax"

TIMES_FASTER = 30.0
PLAIN, TUNED = "diffrax, plain", "diffrax, tuned"
RTOL, ATOL = 1e-5, 1e-6
STIFFNESSES = 8  # protocols, each with a drive level of its own
CHECKED = 4  # clones of each protocol whose error is measured


class Scale(NamedTuple):
    """The unit of mu."""

    unit: Any


class Pair(NamedTuple):
    """Place and speed."""

    x: Any
    y: Any


class VanDerPol(OdeWorld):
    """A relaxation oscillator (van der Pol 1926, doi:10.1080/14786442608564127).

    ``x' = y,  y' = mu (1 - x^2) y - x`` with mu driven from 1 to 20 on a logarithmic scale, and initial
    states uniform in [-2, 2] and [-1, 1]. A tick is one time unit. The fixed step is the one that resolves
    the jumps at mu = 20.
    """

    id, title, track, phenomenon = "van-der-pol", "Van der Pol", "benchmark", "relaxation oscillations"
    drives = (Drive("mu", 1.0, 20.0, rest=0.5, log=True),)
    sensors = (Sensor("x", -2.5, 2.5),)
    scheme = RK4(dt=0.005, substeps=200)
    grammar = Grammar((1, 1), (1, TICKS), (2, TICKS), (1, 1), {"x": 1.0})
    mean_fraction = sd_fraction = 0.03
    horizon = TICKS

    def draw(self, draws: Draws) -> Scale:
        """The usual parameters: no instance differs."""
        del draws
        return self.limit()

    def limit(self, **changes: Any) -> Scale:
        """A unit of 1."""
        return Scale(np.float32(1))._replace(**changes)

    def initial(self, params: Scale, noise: Noise) -> Pair:
        """Uniform in a box."""
        del params
        return Pair(4 * noise.uniform(0) - 2, 2 * noise.uniform(1) - 1)

    def drift(self, state: Pair, drive: Any, params: Scale) -> Pair:
        """The law, term by term."""
        return Pair(state.y, params.unit * drive.mu * (1 - state.x * state.x) * state.y - state.x)

    def read(self, state: Pair, drive: Any, params: Scale) -> tuple[Any, ...]:
        """The place."""
        del drive, params
        return (state.x,)


def held_at(levels: Sequence[float], ticks: int = TICKS) -> list[Request]:
    """One request a drive level, which asks for the mean of port 0 over the second half."""
    return [
        Request(
            Protocol((Segment(ticks, {"u0": float(level)}),)),
            ("benchmark", k),
            Readout(0, ticks // 2, ticks, sd=False),
        )
        for k, level in enumerate(levels)
    ]


class _Keys(NamedTuple):
    """Of each request, the keys of initial states and of sensor noise, ``[request]``."""

    initial: Words
    sensor: Words


def _keys(instance: Instance, requests: Sequence[Request]) -> _Keys:
    def words(role: str) -> Words:
        found = [role_words(instance.world.id, instance.seed, role, *r.purpose) for r in requests]
        return Words(np.array([w.high for w in found]), np.array([w.low for w in found]))

    return _Keys(words("initial"), words("sensor"))


def classical() -> Any:
    """The classical Runge-Kutta scheme of fourth order as a diffrax solver."""
    import diffrax

    class Classical(diffrax.AbstractERK):
        tableau = diffrax.ButcherTableau(
            a_lower=(np.array([0.5]), np.array([0.0, 0.5]), np.array([0.0, 0.0, 1.0])),
            b_sol=np.array([1, 2, 2, 1]) / 6,
            b_error=np.zeros(4),
            c=np.array([0.5, 0.5, 1.0]),
        )
        interpolation_cls = diffrax.ThirdOrderHermitePolynomialInterpolation.from_k

        def order(self, terms: Any) -> int:
            del terms
            return 4

    return Classical()


def _diffrax_clone(
    instance: Instance, request: Request, solver: Any, step: float | None, plain: bool
) -> Callable[..., Any]:
    """One clone's statistic by `diffeqsolve`, from its drive level, keys, number and sd of noise."""
    import diffrax

    world, readout = instance.world, request.readout
    assert readout is not None
    assert isinstance(world, OdeWorld)
    ticks, span = request.protocol.ticks, float(world.scheme.tick_time)
    params = instance.params
    times = span * jnp.arange(readout.start, readout.stop + 1)
    control = diffrax.ConstantStepSize() if step else diffrax.PIDController(rtol=RTOL, atol=ATOL)
    most = int(np.ceil(ticks * span / step)) + 1 if step else 2**16

    def one(level: Any, initial: Words, sensor: Words, clone: Any, sigma: Any) -> Any:
        drive = world.physical(level)
        state = begin(world, params, Noise(clone_words(initial, clone), jnp.uint32(0)), jnp.float32)
        fields = type(state)
        start = (*state, jnp.zeros_like(state[0]))

        def rates(t: Any, both: Any, args: Any) -> Any:
            del t, args
            slopes = (*world.drift(fields(*both[:-1]), drive, params), both[0] / span)
            return jnp.stack(slopes) if plain else slopes

        def integral(t: Any, both: Any, args: Any) -> Any:
            del t, args
            return both[-1]

        solution = diffrax.diffeqsolve(
            diffrax.ODETerm(rates),
            solver,
            0.0,
            ticks * span,
            step or world.scheme.dt,
            jnp.stack(start) if plain else start,
            saveat=diffrax.SaveAt(ts=times, fn=integral),
            stepsize_controller=control,
            max_steps=most,
            throw=False,
        )
        number = jnp.arange(readout.start, readout.stop, dtype=jnp.uint32)
        noise = normal_from(bits(clone_words(sensor, clone), number, jnp.uint32(0)))
        return jnp.mean(jnp.diff(jnp.asarray(solution.ys)) + sigma * noise)

    return one


def diffrax_party(
    instance: Instance,
    requests: Sequence[Request],
    clones: int,
    solver: Any,
    *,
    step: float | None = None,
    plain: bool = False,
) -> Callable[..., np.ndarray]:
    """The same statistics by `diffeqsolve` under vmap: drives constant, the mean of port 0 over a window.

    Args:
        instance: of a world with one drive, whose first sensor is its first state variable.
        requests: each with one drive level.
        clones: of each request.
        solver: a diffrax solver.
        step: the fixed step; None for diffrax's controller at `RTOL` and `ATOL`.
        plain: take the form of its documentation, not the tuned one; see the module.

    Returns:
        A function of the sd of the sensor noise, by default `SIGMA`, to the statistics ``[request, clone]``.
    """
    levels = np.array([instance.levels(request.protocol)[0] for request in requests], np.float32)
    keys = _keys(instance, requests)
    program = jax.vmap(_diffrax_clone(instance, requests[0], solver, step, plain))
    if not plain:
        mesh, shares = Mesh(np.array(jax.devices()), ("clone",)), PartitionSpec("clone")
        program = jax.shard_map(program, mesh=mesh, in_specs=shares, out_specs=shares, check_vma=False)
    program = jax.jit(program)
    total = len(requests) * clones
    # Each device takes all requests alike; the last lanes repeat, where they do not divide evenly.
    padded = -(-total // len(jax.devices())) * len(jax.devices())
    clone, row = np.divmod(np.minimum(np.arange(padded), total - 1), len(requests))
    inputs = (levels[row], *(Words(k.high[row], k.low[row]) for k in keys), clone.astype(np.uint32))

    def run(sigma: float = SIGMA) -> np.ndarray:
        return (
            np.asarray(program(*inputs, np.full(padded, sigma, np.float32)))[:total]
            .reshape(clones, len(requests))
            .T
        )

    return run


def c_party(instance: Instance, requests: Sequence[Request], clones: int) -> Callable[[], Any] | None:
    """The scalar C twin of the adaptive ensemble on all cores; returns values and attempts of steps."""
    floats, words, whole = (np.ctypeslib.ndpointer(t) for t in (np.float32, np.uint32, np.int64))
    numbers = [ctypes.c_int] * 3 + [ctypes.c_float] * 5
    function = c_function(
        "adaptive.c",
        "adaptive",
        [*[ctypes.c_int64] * 3, floats, words, words, *numbers, floats, whole],
    )
    if function is None:
        return None
    world, readout = instance.world, requests[0].readout
    assert readout is not None
    level = np.stack([instance.levels(request.protocol)[:, 0] for request in requests])
    mu = np.ascontiguousarray(world.drives[0].physical(level), np.float32)
    initial, sensor = (
        np.ascontiguousarray(np.stack(words, 1), np.uint32) for words in _keys(instance, requests)
    )
    reach = float(world.sensors[0].high - world.sensors[0].low)
    total = len(requests) * clones
    values, attempts = np.empty(total, np.float32), np.empty(total, np.int64)
    sigma = float(instance.gauge.sigma[0])

    def share(first: int, count: int) -> None:
        function(
            first, count, clones, mu, initial, sensor, mu.shape[1], readout.start, readout.stop,
            sigma, reach, RTOL, ATOL, world.scheme.dt, values, attempts,
        )  # fmt: skip

    def run() -> tuple[np.ndarray, np.ndarray]:
        on_all_cores(share, total)
        return values.reshape(len(requests), clones), attempts

    return run


def exact(instance: Instance, requests: Sequence[Request], clones: int) -> np.ndarray:
    """The statistics without noise by the adaptive path in double precision, ``[request, clone]``."""
    found = np.empty((len(requests), clones))
    world = instance.world
    with jax.enable_x64(True):
        params = jax.tree.map(jnp.float64, instance.params)
        for k, request in enumerate(requests):
            assert request.readout is not None
            key = role_words(world.id, instance.seed, "initial", *request.purpose)
            for clone in range(clones):
                noise = Noise(clone_words(key, np.uint32(clone)), np.uint32(0))
                # Single precision at first, as all parties begin.
                state = begin(instance.world, instance.params, noise, jnp.float32)
                readings = reference_readings(
                    instance.world,
                    params,
                    instance.levels(request.protocol),
                    initial=state,
                    rtol=1e-10,
                    atol=1e-10,
                )
                found[k, clone] = readings[request.readout.start : request.readout.stop, 0].mean()
    return found


def _error(found: np.ndarray, true: np.ndarray) -> float:
    """The root mean square error over the clones that were checked."""
    return float(np.sqrt(np.mean((found[:, : true.shape[1]] - true) ** 2)))


def fixed_row(quick: bool, tell: Tell) -> Row:
    """Lorenz 63 by fixed steps."""
    import diffrax

    clones = 1_000 if quick else 10_000
    instance = bench_instance(Lorenz63())
    request, dt = held_at([0.7]), instance.world.scheme.dt
    tell(f"Lorenz 63, {clones} clones, fixed steps against diffrax")
    # Chaos makes errors of any size in the end: they are compared over the first 16 ticks.
    short, checked = held_at([0.7], 16), 16
    true = exact(instance, short, checked)
    errors = {"ours": _error(measure(instance, short, checked, noise=False).values, true)}
    parties: dict[str, Callable[[], Any]] = {"ours": lambda: measure(instance, request, clones)}
    forms: dict[str, dict[str, Any]] = {
        PLAIN: {"solver": classical(), "step": dt, "plain": True},
        TUNED: {"solver": classical(), "step": dt},
    }
    if not quick:
        forms["diffrax, plain, longest steps"] = {"solver": diffrax.Tsit5(), "step": 2.5 * dt, "plain": True}
    for name, form in forms.items():
        errors[name] = _error(diffrax_party(instance, short, checked, **form)(0), true)
        parties[name] = diffrax_party(instance, request, clones, **form)
    return _row("fixed", race(parties, 3 if quick else 5), errors, clones, {})


def adaptive_row(quick: bool, tell: Tell) -> Row:
    """Van der Pol oscillators by adaptive steps."""
    import diffrax

    each = (2_000 if quick else 10_000) // STIFFNESSES
    instance = bench_instance(VanDerPol())
    requests = held_at([(k + 0.5) / STIFFNESSES for k in range(STIFFNESSES)])
    tell(f"Van der Pol, {each * STIFFNESSES} clones, adaptive steps against diffrax and C")

    def ours(clones: int, *, noise: bool = True) -> np.ndarray:
        return measure_adaptive(instance, requests, clones, noise=noise, rtol=RTOL, atol=ATOL).values

    true = exact(instance, requests, CHECKED)
    errors = {"ours": _error(ours(CHECKED, noise=False), true)}
    parties: dict[str, Callable[[], Any]] = {"ours": lambda: ours(each)}
    for name, plain in ((PLAIN, True), (TUNED, False)):
        form: dict[str, Any] = {"solver": diffrax.Tsit5(), "plain": plain}
        party = diffrax_party(instance, requests, each, **form)
        errors[name], parties[name] = _error(party(0), true), party
    silent = dataclasses.replace(instance, gauge=instance.gauge.noise_free())
    twin, checked = c_party(instance, requests, each), c_party(silent, requests, CHECKED)
    more: dict[str, Any] = {}
    if twin and checked:
        errors["scalar C"] = _error(checked()[0], true)
        parties["scalar C"] = twin
        values, attempts = twin()
        more["median_difference_from_c"] = float(np.median(np.abs(ours(each) - values)))
        more["attempts_a_clone"] = {"mean": float(attempts.mean()), "most": int(attempts.max())}
    return _row("adaptive", race(parties, 3 if quick else 5), errors, each * STIFFNESSES, more)


def _row(
    kind: str, times: dict[str, Timing], errors: dict[str, float], clones: int, more: dict[str, Any]
) -> Row:
    ratios = {rival: ratio(times["ours"], times[rival]) for rival in times if rival != "ours"}
    faster = 1 / ratios[PLAIN].median
    few = "" if clones >= 10_000 else "; few clones, of which diffrax takes each in less time than of 10,000"
    seconds = {name: timing.to_json() for name, timing in times.items()}
    return Row(
        name=f"against diffrax under vmap, {kind} steps",
        figure=f"{faster:.3g} times faster",
        target=f"at least {TIMES_FASTER:g} times faster",
        value=faster,
        limit=TIMES_FASTER,
        smaller_is_better=False,
        rivals=ratios,
        detail={"clones": clones, "root_mean_square_errors": errors, "seconds": seconds, **more},
        note=f"{1 / ratios[TUNED].median:.3g} times faster than diffrax with its state as scalars on all "
        "devices, which its documentation does not show" + few,
    )


def rows(quick: bool, tell: Tell) -> list[Row]:
    """Both rows."""
    return [fixed_row(quick, tell), adaptive_row(quick, tell)]
