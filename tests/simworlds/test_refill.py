"""Jobs on lanes that refill: results depend on a job's number alone."""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from simworlds.refill import refill

JOBS = 100


class Countdown(NamedTuple):
    """A job that lasts as long as its number says, and adds up as it goes."""

    number: Any
    left: Any
    total: Any


def length(number):
    """From 0 to 36 steps, in no order."""
    return (number * 29) % 37


def begin(number):
    return Countdown(number, length(number).astype(jnp.int32), jnp.float32(0))


def step(job):
    going = job.left > 0
    total = job.total + jnp.where(going, job.number * 0.5 + job.left, 0).astype(jnp.float32)
    return Countdown(job.number, job.left - going, total)


def finished(job):
    return job.left <= 0


def result(job):
    return {"number": job.number, "total": job.total, "pair": jnp.stack([job.total, -job.total])}


@partial(jax.jit, static_argnames=("lanes", "steps", "room"))
def run(jobs, *, lanes, steps, room):
    return refill(begin, step, finished, result, jobs, lanes=lanes, steps=steps, room=room)


def expected(number):
    n = np.asarray(length(number), np.float64)
    return n * number * 0.5 + n * (n + 1) / 2


@pytest.mark.parametrize(
    ("jobs", "lanes", "steps", "room"),
    [
        (JOBS, 8, 4, 128),
        (JOBS, 3, 1, 128),
        (JOBS, 16, 50, 100),
        (1, 8, 4, 128),
        (5, 16, 4, 8),
        (0, 8, 4, 128),
    ],
    ids=["as usual", "one step a pass", "no room to spare", "one job", "more lanes than jobs", "no job"],
)
def test_every_job_is_done_once_whatever_the_lanes(jobs, lanes, steps, room):
    found = run(jobs, lanes=lanes, steps=steps, room=room)
    number = np.arange(jobs)
    assert np.array_equal(found["number"][:jobs], number)
    assert np.array_equal(found["total"][:jobs], expected(number))
    assert np.array_equal(found["pair"][:jobs], np.stack([expected(number), -expected(number)], 1))
    assert not np.any(found["total"][jobs:])


def test_jobs_of_length_zero_hand_in_what_they_began_with():
    with_zero = np.flatnonzero(length(np.arange(JOBS)) == 0)
    assert len(with_zero) > 2
    assert not np.any(np.asarray(run(JOBS, lanes=8, steps=4, room=128)["total"])[with_zero])


@partial(jax.jit, static_argnames=("lanes", "steps"))
def run_with_rows(jobs, *, lanes, steps):
    """Each job counts down three times, from its length, from one more and from two more."""

    def resume(job):
        more = length(job.number).astype(jnp.int32) + jnp.round(job.total / 1000).astype(jnp.int32)
        return Countdown(job.number, more, job.total + 1000)

    return refill(
        begin,
        lambda job: job._replace(left=jnp.maximum(job.left - 1, 0)),
        finished,
        lambda job: job.number + job.total,
        jobs,
        lanes=lanes,
        steps=steps,
        room=128,
        rows=3,
        resume=resume,
    )


@pytest.mark.parametrize(("lanes", "steps"), [(8, 4), (3, 1), (200, 7)])
def test_a_job_hands_in_several_results_in_their_order(lanes, steps):
    found = run_with_rows(JOBS, lanes=lanes, steps=steps)
    assert np.array_equal(found[:JOBS], np.arange(JOBS)[:, None] + [0, 1000, 2000])
    assert not np.any(found[JOBS:])


def test_a_result_for_each_row_has_that_axis_even_for_one_row():
    shapes = [
        jax.eval_shape(
            lambda rows=rows: refill(
                begin, step, finished, result, 2, lanes=2, steps=1, room=4, rows=rows, resume=lambda job: job
            )
        )["pair"].shape
        for rows in (1, 2)
    ]
    assert shapes == [(4, 1, 2), (4, 2, 2)]
