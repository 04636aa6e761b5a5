"""The interface of passes, and the pipeline that runs and checks them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from weft import settings
from weft.errors import ArgumentError, PassDidNotConverge, PassError, WeftError
from weft.ir import scope
from weft.ir.graph import Graph, on_new_operands
from weft.ir.op import Op
from weft.ir.storage import ReadOp
from weft.ir.target import Target
from weft.ir.traversal import postorder
from weft.passes.visitors import PassClass, declared, require_fitting, visitors_of
from weft.plugins import contributions
from weft.plugins.blame import blaming, origin_of
from weft.plugins.entrypoints import PASSES
from weft.support.dispatch import ClassTable
from weft.support.overrides import misfit, refusal_of
from weft.support.quoting import file_name

_TAKES = "a pass takes a graph and the target, and returns a graph"


@contributions.base_of(PASSES)
class GraphPass(ABC):
    """A pass over a whole graph."""

    _fitting: ClassVar[Callable[..., Any] | None] = None
    """The method that the class was defined with, which need not be checked when it runs."""

    @abstractmethod
    def do_pass(self, graph: Graph, target: Target) -> Graph:
        """Return an equivalent graph; the same object if nothing changed.

        A pure function: the given graph and its ops are not modified.
        """

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        problem = misfit(cls, "weft")
        if problem:
            raise PassError(f"{problem}: {_TAKES}")
        cls._fitting = cls.do_pass

    @property
    def name(self) -> str:
        """The name of the pass in listings and messages."""
        return type(self).__name__

    @property
    def is_as_defined(self) -> bool:
        """Whether it runs what its class was defined with, and nothing that was set later."""
        return self._do_pass_is_as_defined()

    def _do_pass_is_as_defined(self) -> bool:
        return type(self).do_pass is type(self)._fitting and "do_pass" not in vars(self)


class PeepholeGraphPass(GraphPass, metaclass=PassClass):
    """A pass that rewrites one op at a time.

    Methods marked ``@visit.on_type(SomeOp)`` see every op of that class or a subclass, the nearest
    class in the op's MRO winning, and a plain method ``visit(self, op)`` every op that has no
    other; a subclass of the pass adds visitors or overrides those of its parents, which may be
    classes that are not passes. A ``visit(op)`` that is set on the object is a plain method too. A
    visitor that cannot be called with an op raises PassError, when the class is defined or when the
    pass runs. A visitor calls `replace_op`; the ops it makes are visited in turn, until nothing
    changes. The operands of the op it sees have been rewritten already.
    """

    bound: ClassVar[int] = 100
    """How often one op of the graph may be replaced before the pass counts as stuck."""

    _visitors: ClassVar[Mapping[type[Op], Callable[..., Any]]] = {}
    """Those that the class was defined with, which need not be checked when it runs."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        cls._visitors = require_fitting(cls)

    @property
    def is_as_defined(self) -> bool:
        """Whether its visitors, too, are those that its class was defined with."""
        return super().is_as_defined and declared(type(self)) == self._visitors

    def do_pass(self, graph: Graph, target: Target) -> Graph:
        """Visit every op, operands first; raises PassError for anything but a captured graph."""
        if not isinstance(graph, Graph):
            raise PassError(
                f"pass {self.name} takes a graph and a target, not {graph!r}: "
                "do_pass(weft.capture(results, parameters), transformer.target)"
            )
        return _PeepholeRun(self, target).run(graph)

    def replace_op(self, op: Op, replacement: Op) -> None:
        """Replace the op being visited; axes and dtype must stay the same."""
        _run_of(self).replacements[op] = replacement

    @property
    def target(self) -> Target:
        """The target, while the pass runs."""
        return _run_of(self).target


class _PeepholeRun:
    """One run of a peephole pass over one graph."""

    def __init__(self, owner: PeepholeGraphPass, target: Target) -> None:
        self.owner = owner
        self.target = target
        self.replacements: dict[Op, Op] = {}
        self.settled: dict[Op, None] = {}
        self.visitors = _Visitors(visitors_of(owner, owner._visitors))
        self.context = scope.Replacements()

    def run(self, graph: Graph) -> Graph:
        if all(self.visitors[kind] is None for kind in graph.kinds):
            return graph
        token = _active.set((*_active.get(), self))
        try:
            with self.context:
                return graph.rewrite(self.settle, self.settled)
        finally:
            _active.reset(token)

    def settle(self, op: Op, depth: int = 0) -> Op:
        """Visit an op, whose operands are settled, until nothing replaces it.

        `depth` counts the replacements that led to it; the bound of that is one of recursion too.
        """
        while (visitor := self.visitors[type(op)]) is not None:
            self.context.turn_to(op)
            try:
                visitor(op)
            except Exception as error:
                error.add_note(f"in pass {self.owner.name}, visiting {op}, {op.file_info}")
                raise
            new = self.replacements.pop(op, op)
            if new is op:
                break
            self.check(op, new, depth)
            depth += 1
            op = self.settle_operands(new, depth)
        self.settled[op] = None
        return op

    def settle_operands(self, root: Op, depth: int) -> Op:
        """Return a new op with every new op below it settled."""
        if root in self.settled:
            return root
        settled = self.settled
        fresh = postorder([root], lambda op: [arg for arg in op.args if arg not in settled])
        final: dict[Op, Op] = {}
        for op in fresh:
            op_now = on_new_operands(op, final)
            final[op] = op_now if op is root else self.settle(op_now, depth)
        return final[root]

    def check(self, op: Op, new: Op, depth: int) -> None:
        """Refuse a replacement of other axes or dtype, and one too many."""
        if (new.axes, new.dtype) != (op.axes, op.dtype):
            raise PassError(
                op.explain(
                    f"pass {self.owner.name} replaced it by {type(new).__name__} {new} and changed "
                    f"{op.dtype} {op.axes} to {new.dtype} {new.axes}: a replacement must keep both"
                )
            )
        if depth >= self.owner.bound:
            raise PassDidNotConverge(
                op.explain(
                    f"pass {self.owner.name} went on replacing it after {self.owner.bound} times, "
                    f"last by {type(new).__name__} {new}: two of its rules undo each other, or one "
                    "matches what it makes"
                )
            )


class _Visitors(dict[type, Callable[..., Any] | None]):
    """For each class of ops the visitor of the nearest class in its MRO, or None."""

    def __init__(self, table: Mapping[type[Op], Callable[..., Any]]) -> None:
        self.table = ClassTable(table)

    def __missing__(self, kind: type) -> Callable[..., Any] | None:
        found = self[kind] = self.table.nearest(kind)
        return found


_active: ContextVar[tuple[_PeepholeRun, ...]] = ContextVar("weft_peephole_runs", default=())


def _run_of(owner: PeepholeGraphPass) -> _PeepholeRun:
    for run in reversed(_active.get()):
        if run.owner is owner:
            return run
    raise PassError(f"pass {owner.name} is asked about a run, but it is not running")


class PassHistory(NamedTuple):
    """What passes made of a graph.

    Attributes
    ----------
    graph
        The graph before any pass.
    steps
        The name of each pass and the graph after it, which is the same object if nothing changed.
    """

    graph: Graph
    steps: list[tuple[str, Graph]]


def run_passes(
    graph: Graph,
    passes: Iterable[GraphPass],
    target: Target,
    label: str = "graph",
    histories: list[PassHistory] | None = None,
) -> Graph:
    """Return the graph after each pass in turn.

    Raises PassError that names the pass if it leaves a malformed graph, or changes what the graph
    takes, returns or writes, or its effects. With ``WEFT_DUMP`` set to a folder, the text before
    and after each pass that changed something is written there. The graph after each pass becomes
    the last of the `histories`.

    What is quickly checked is checked after every pass, but the graph is verified once, when all
    have run. If something is wrong they run again, as pure functions may, with all checks after
    each, so that the first that went wrong is the one named.
    """
    history = None
    if histories is not None:
        histories.append(history := PassHistory(graph, []))
    run = _Run(graph, tuple(passes), target, label, history)
    folder = settings.DUMP.value
    if folder is not None:
        return run.step_by_step(partial(_dump, folder, label))
    try:
        return run.at_once()
    except Exception as error:
        failure = error
    run.step_by_step()
    raise failure


@dataclass
class _Run:
    """Some passes on a graph."""

    graph: Graph
    passes: tuple[GraphPass, ...]
    target: Target
    label: str
    history: PassHistory | None

    def at_once(self) -> Graph:
        """Return the graph after all passes, verified once.

        A pass that left this very graph as it is does not see it again.
        """
        graph = self.graph
        unchanged: set[GraphPass] = set()
        for graph_pass in self.passes:
            if graph_pass in unchanged:
                continue
            new = self.step(graph_pass, graph)
            if new is not graph:
                unchanged.clear()
            else:
                unchanged.add(graph_pass)
            graph = new
        graph.verify()
        _require_effects_once("the passes", self.graph, graph)
        return graph

    def step_by_step(self, note: Callable[[str, Graph, Graph], None] | None = None) -> Graph:
        """Return the graph after all passes, verified after each."""
        self.require_sound()
        graph = self.graph
        for number, graph_pass in enumerate(self.passes):
            new = self.step(graph_pass, graph)
            with self.blaming(graph_pass):
                try:
                    new.verify()
                except WeftError as error:
                    problem = f"pass {graph_pass.name} left a malformed graph: {error}"
                    raise PassError(problem) from error
                _require_effects_once(f"pass {graph_pass.name}", graph, new)
            if note and new is not graph:
                note(f"{number}.{graph_pass.name}", graph, new)
            graph = new
        return graph

    def require_sound(self) -> None:
        """Refuse a graph that is malformed before any pass, or has been since they ran."""
        try:
            self.graph.verify()
        except WeftError as error:
            names = ", ".join(dict.fromkeys(graph_pass.name for graph_pass in self.passes))
            raise PassError(
                "the graph was malformed before any pass, or an op of it was changed in place by "
                f"one of these, which a pass must not do: {names}\n{error}"
            ) from error

    def step(self, graph_pass: GraphPass, old: Graph) -> Graph:
        """Run a pass, and check what can be seen without looking at all ops."""
        with self.blaming(graph_pass):
            return self.checked_step(graph_pass, old)

    def blaming(self, graph_pass: GraphPass) -> blaming:
        """Return the context in which errors are those of the plugin that brought a pass."""
        doing = f"in pass {graph_pass.name}, on {self.label} for backend {self.target.name}"
        return blaming(origin_of(type(graph_pass)), doing)

    def checked_step(self, graph_pass: GraphPass, old: Graph) -> Graph:
        """Return the graph after a pass."""
        _require_fitting(graph_pass)
        new = graph_pass.do_pass(old, self.target)
        if not isinstance(new, Graph):
            raise PassError(f"pass {graph_pass.name} returned {new!r}, not a graph")
        if new is not old and (_interface(old) != _interface(new) or _changed_updates(old, new)):
            raise PassError(
                f"pass {graph_pass.name} changed what the graph takes, returns or writes:\n"
                f"  before: {_described(old)}\n  after: {_described(new)}"
            )
        if self.history is not None:
            self.history.steps.append((graph_pass.name, new))
        return new


def _require_fitting(graph_pass: GraphPass) -> None:
    """Refuse a method `do_pass` with other parameters that the class was not defined with."""
    if graph_pass._do_pass_is_as_defined():
        return
    problem = refusal_of(graph_pass.do_pass, ("graph", "target"))
    if problem:
        raise PassError(f"{graph_pass.name}.do_pass {problem}, not (graph, target): {_TAKES}")


def _require_effects_once(who: str, old: Graph, new: Graph) -> None:
    """Refuse a graph that lost an effect or has it twice; the user's line tells which is which."""
    if not old.effects:
        return
    before, after = (
        Counter(op.location for op in graph.ops if op.has_effect) for graph in (old, new)
    )
    listed, kept = (Counter(op.location for op in graph.effects) for graph in (old, new))
    for op in old.effects:
        if kept[op.location] < listed[op.location]:
            raise PassError(op.explain(f"{who} lost the effect: the graph's effects lack it"))
        if after[op.location] > before[op.location]:
            raise PassError(op.explain(f"{who} made more than one effect of this one"))


def _interface(graph: Graph) -> tuple[Any, ...]:
    return (
        [op.source for op in graph.inputs],
        [(op.axes, op.dtype) for op in graph.outputs],
    )


def _described(graph: Graph) -> str:
    inputs = [op.source.name for op in graph.inputs]
    outputs = [f"{op.dtype} {op.axes}" for op in graph.outputs]
    updates = [state.name for state, _ in graph.updates]
    return f"inputs {inputs}, outputs {outputs}, updates of {updates}"


def _changed_updates(old: Graph, new: Graph) -> bool:
    """Whether a state is written that was not before, or one that was written no longer is.

    A write of the state's own value may be dropped.
    """
    before = {state for state, _ in old.updates}
    after = {state for state, _ in new.updates}
    idle = {s for s, value in old.updates if isinstance(value, ReadOp) and value.state is s}
    return not before - idle <= after <= before


def _dump(folder: Path, label: str, step: str, before: Graph, after: Graph) -> None:
    text = f"# before\n{before}\n# after\n{after}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{file_name(label)}.{file_name(step)}.txt"
        path.write_text(text, encoding="utf-8", errors="backslashreplace")
    except OSError as error:
        raise ArgumentError(f"WEFT_DUMP={folder}: nothing can be written there: {error}") from None
