"""Random programs of ranks that do not all do the same: right numbers everywhere, or an error.

Arguments: the first seed, and how many programs there are. A rank may raise in a call, before,
between and after its collectives, and go on; call computations in another order, or in two threads;
compute what the others do not; and set states before anything is compiled.
"""

from __future__ import annotations

import atexit
import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from mpi4py import MPI

import weft
from weft.communicators import choice, connected
from weft.errors import AxesError, CheckFailed, CommunicationError
from weft.ranks.collectives import started, waited

LIMIT = 30.0
"""Seconds that no program may take."""
world = MPI.COMM_WORLD
mine, size = world.rank, world.size
PLACES = 3
"""Where a call can raise: before its first collective, between them, and after its last."""


@dataclass
class Step:
    """What the ranks do at once: one call, or two in threads.

    Attributes
    ----------
    calls
        The numbers of the computations.
    given
        What each rank gives each call.
    faults
        Where each rank raises in a call: a place, ``argument``, or nothing.
    delays
        The seconds that each rank waits before each call.
    """

    calls: list[int]
    given: Any
    faults: list[Any]
    delays: Any


@dataclass
class Plan:
    """A program, as each rank knows it for all of them."""

    kinds: list[str]
    steps: list[Step]
    orders: list[list[int]]
    extras: list[list[str]]


@dataclass
class Found:
    """What a rank found: the results by step and call, and its error."""

    results: dict[tuple[int, int], float] = field(default_factory=dict)
    raised: set[tuple[int, int]] = field(default_factory=set)
    error: str = ""
    seconds: float = 0.0


def planned(seed: int) -> Plan:
    """Return a random program."""
    rng = np.random.default_rng(seed)
    kinds = [str(rng.choice(["two", "later", "state", "lengths"])) for _ in range(3)]
    if rng.random() < 0.5:
        kinds[1] = kinds[0]  # equal graphs, built on one line
    steps = []
    for _ in range(rng.integers(2, 6)):
        calls = [int(rng.integers(3))]
        if rng.random() < 0.1:
            calls.append(int((calls[0] + 1) % 3))
        faults: list[Any] = [None] * size
        if rng.random() < 0.15:
            faults[rng.integers(size)] = [*range(PLACES), "argument"][rng.integers(PLACES + 1)]
        shape = (size, len(calls))
        delays = rng.choice([0.0, 0.0, 0.003, 0.02], shape)
        steps.append(Step(calls, rng.integers(-9, 9, shape), faults, delays))
    orders = [list(range(len(steps))) for _ in range(size)]
    first, rank = rng.integers(len(steps) - 1), rng.integers(size)
    if rng.random() < 0.3:
        orders[rank][first : first + 2] = orders[rank][first : first + 2][::-1]
    kinds_of_extras = ["", "", "local", "set", "rank", "get", "states"]
    extras = [[str(rng.choice(kinds_of_extras)) for _ in range(len(steps) + 2)] for _ in orders]
    return Plan(kinds, steps, orders, extras)


class Rank:
    """What one rank does of a plan."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.found = Found()
        self.transformer = weft.make_transformer("numpy")
        self.weight = weft.variable((3,), initial_value=2, name="weight")
        self.shared = weft.variable(
            (3,), initial_value=weft.broadcast_from(np.full(3, mine + 1, "float32"))
        )
        self.extra(plan.extras[mine][-1])
        self.computations = [self.computation(kind) for kind in plan.kinds]

    def computation(self, kind: str) -> Any:
        """Return a computation with three places that a flag makes raise."""
        length = weft.symbol("length") if kind == "lengths" else 3
        x, ok = weft.placeholder((length,)), weft.placeholder((PLACES,), "bool")

        def may_raise(value: Any, place: int) -> Any:
            return weft.assert_op(value, ok[place], "only here")

        y = may_raise(x, 0)
        if kind == "later":
            start = started("all_reduce", y)
            middle = may_raise(x, 1)
            total = waited(start) + 0 * middle
        else:
            once = may_raise(weft.all_reduce(y), 1)
            total = weft.all_reduce(once) / size
        if kind == "state":
            state = weft.variable((3,), initial_value=0)
            weft.assign(state, state + may_raise(total, 2))
            total = state + 0
        else:
            total = may_raise(total, 2)
        result = weft.max(total * self.weight[0] / 2 + (self.shared[0] - 1))
        return self.transformer.computation(result, x, ok)

    def extra(self, what: str) -> None:
        """Do what the other ranks do not."""
        x = weft.placeholder((3,))
        if what == "local":
            own = weft.variable((3,), initial_value=1)
            weft.assign(own, own + x * self.weight)
            call = self.transformer.computation(own, x)
            assert call(np.ones(3, "f4"))[0] == 3
        elif what == "set":
            self.transformer.set_value(self.weight, np.full(3, 2, "f4"))
            self.transformer.set_value(self.shared, np.ones(3, "f4"))
        elif what == "rank":
            assert self.transformer.computation(weft.rank_index() + 1)() == mine + 1
        elif what == "get":
            assert self.transformer.get_value(self.weight)[0] == 2
        elif what == "states":
            weft.make_transformer("numpy").computation(x + 1, x)(np.ones(3, "f4"))

    def run(self) -> Found:
        """Run the program."""
        begin = time.monotonic()
        try:
            for number in self.plan.orders[mine]:
                self.extra(self.plan.extras[mine][number])
                self.step(number)
            connected("mpi").barrier("the end")
        except CommunicationError as error:
            self.fail(error)
        self.found.seconds = time.monotonic() - begin
        return self.found

    def fail(self, error: CommunicationError) -> None:
        """Take note of an error, and end: the others find this rank at the end of its program."""
        self.found.error = self.found.error or str(error)
        with suppress(CommunicationError):
            connected("mpi").barrier("the end after an error")

    def step(self, number: int) -> None:
        """Make the calls of a step."""
        step = self.plan.steps[number]
        if len(step.calls) == 1:
            self.call(number, 0)
            return
        errors: list[CommunicationError] = []

        def calling(place: int) -> None:
            try:
                self.call(number, place)
            except CommunicationError as error:
                errors.append(error)

        threads = [threading.Thread(target=calling, args=(each,)) for each in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if errors:
            raise errors[0]

    def call(self, number: int, place: int) -> None:
        """Make a call, and go on if it raises what only this rank raises."""
        step = self.plan.steps[number]
        time.sleep(step.delays[mine, place])
        fault = step.faults[mine]
        x = np.full((3, 2) if fault == "argument" else 3, step.given[mine, place], "f4")
        ok = np.arange(PLACES) != (fault if isinstance(fault, int) else PLACES)
        try:
            result = self.computations[step.calls[place]](x, ok)
        except (CheckFailed, AxesError):
            self.found.raised.add((number, place))
        else:
            self.found.results[number, place] = float(result)


def is_harmless(plan: Plan) -> bool:
    """Whether all ranks run the same collectives: a rank raises after it has started the last."""
    for step in plan.steps:
        last_start = 1 if plan.kinds[step.calls[0]] == "later" else 2
        if len(step.calls) > 1 or any(each not in (None, 2, last_start) for each in step.faults):
            return False
    made = [[plan.steps[number].calls for number in order] for order in plan.orders]
    return all(each == made[0] for each in made)


def calls_of(plan: Plan, rank: int, which: int) -> list[tuple[int, int]]:
    """Return the calls of a computation in the order of a rank: those of a number are one call."""
    places = [(number, place) for number in plan.orders[rank] for place in range(2)]
    calls = [plan.steps[number].calls for number in range(len(plan.steps))]
    return [(n, place) for n, place in places if calls[n][place : place + 1] == [which]]


def wrong(plan: Plan, rank: int, found: Found) -> list[str]:
    """Return which results of a rank are not those of the calls that belong together."""
    problems = []
    for which, kind in enumerate(plan.kinds):
        total = 0.0
        for together in zip(*[calls_of(plan, each, which) for each in range(size)], strict=True):
            call = together[rank]
            if call not in found.results:
                continue
            given = [plan.steps[n].given[each, place] for each, (n, place) in enumerate(together)]
            total = float(sum(given)) + (total if kind == "state" else 0.0)
            if found.results[call] != total:
                problems.append(f"{call} gave rank {rank} {found.results[call]}, not {total}")
    return problems


def check(seed: int) -> bool:
    """Run a program and check what all ranks found; returns whether they found errors."""
    old = choice._connected.get("mpi")
    if old is not None:
        atexit.unregister(old._leave)  # type: ignore[attr-defined]
        choice.disconnect("mpi")
    world.Barrier()
    connected("mpi")
    plan = planned(seed)
    found = world.allgather(Rank(plan).run())
    problems = [text for rank, each in enumerate(found) for text in wrong(plan, rank, each)]
    failed = [bool(each.error) for each in found]
    is_threaded = any(len(step.calls) == 2 for step in plan.steps)
    if any(failed) and not all(failed) and not is_threaded:
        problems.append(f"an error on some ranks only: {failed}")
    if is_harmless(plan) and any(failed):
        problems.append("an error although all ranks run the same collectives")
    problems += [f"it took {each.seconds:.0f} s" for each in found if each.seconds > LIMIT]
    if not any(failed):
        count = sum(len(step.calls) for step in plan.steps)
        for rank, each in enumerate(found):
            if len(each.results) + len(each.raised) != count:
                problems.append(f"rank {rank} has {len(each.results)} results of {count}")
    if problems:
        errors = [each.error for each in found]
        raise SystemExit(f"seed {seed}, {size} ranks, {plan}: {problems}\n" + "\n".join(errors))
    return any(failed)


first, count = map(int, sys.argv[1:])
failed = [check(seed) for seed in range(first, first + count)]
if mine == 0:
    print(f"{count} programs of {size} ranks: {sum(failed)} ended in errors", flush=True)
atexit.unregister(connected("mpi")._leave)  # type: ignore[attr-defined]
world.Barrier()
