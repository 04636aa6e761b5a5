"""The backend of `torch.compile`: graphs of dynamo and their gradients, compiled by weft."""

from __future__ import annotations

import operator
import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from functorch.compile import make_boxed_func, min_cut_rematerialization_partition
from torch._dynamo.backends.common import aot_autograd
from torch.fx.passes.split_module import split_module

import weft
from weft.errors import ArgumentError, GraphError, WeftError
from weft.ir.lengths import Length, evaluate
from weft.runtime.transformer import Transformer
from weft.support.spelling import did_you_mean
from weft_torch.calls import Calls
from weft_torch.decomposing import decompositions
from weft_torch.graphs import (
    Lowering,
    Passed,
    described,
    inverse,
    memory_order,
    require_all,
    symbols_of,
)
from weft_torch.rules import rule_of

OPTIONS = ("backend", "strict")

Backend = str | Transformer | None
"""A backend by name, a transformer to add computations to, or None for the default backend."""


def transformer_of(backend: Backend) -> Transformer:
    """Return a transformer, a new one unless it is given."""
    return backend if isinstance(backend, Transformer) else weft.make_transformer(backend)


class CompiledGraph:
    """A graph of ATen ops as a function of tensors, compiled when it is made or first called.

    A graph with symbolic lengths is compiled once for all of them; if weft cannot, it is compiled
    for each lengths that calls bring.
    """

    def __init__(
        self, module: torch.fx.GraphModule, backend: Backend, lowering: Lowering | None = None
    ) -> None:
        self.module = module
        self.backend = backend
        self.inputs = [fx.meta.get("val") for fx in module.graph.find_nodes(op="placeholder")]
        self.symbols = symbols_of(module)
        self._lock = threading.RLock()
        self._executables: dict[tuple[int, ...] | None, _Executable] = {}
        try:
            first = lowering or Lowering(module, self.symbols).run()
            self._executables[None] = _Executable(first, backend)
        except WeftError:
            if not self.symbols:
                raise

    def _made(self, lengths: Mapping[Any, Any]) -> _Executable:
        return _Executable(Lowering(self.module, lengths).run(), self.backend)

    def __call__(self, *args: Any) -> list[Any]:
        """Return the graph's flat results."""
        found = self._solved(args) if self.symbols else {}
        executable = self._executables.get(None)
        if executable is None:
            key = tuple(found.values())
            with self._lock:
                if key not in self._executables:
                    self._executables[key] = self._made(found)
            executable = self._executables[key]
        return executable(args, {self.symbols[symbol]: n for symbol, n in found.items()})

    def _solved(self, args: Sequence[Any]) -> dict[Any, int]:
        """Return the lengths that a call brings, by their symbols."""
        found: dict[Any, int] = {}
        for val, arg in zip(self.inputs, args, strict=True):
            is_tensor = isinstance(val, torch.Tensor)
            lengths = zip(val.shape, arg.shape, strict=True) if is_tensor else [(val, arg)]
            for wanted, n in lengths:
                if isinstance(wanted, torch.SymInt) and wanted.node.expr.is_Symbol:
                    found[wanted.node.expr] = int(n)
        return {symbol: found[symbol] for symbol in self.symbols}


class _Executable:
    """A computation, and how its results become those of the graph."""

    def __init__(self, lowering: Lowering, backend: Backend) -> None:
        require_all(lowering.refused)
        given = {id(op): at for op, at in zip(lowering.inputs, lowering.places, strict=True)}
        output = next(iter(lowering.module.graph.find_nodes(op="output")))
        fakes = [
            fx.meta.get("val") if isinstance(fx, torch.fx.Node) else fx for fx in _flat(output)
        ]
        inputs = len(lowering.module.graph.find_nodes(op="placeholder"))
        # Of None, what is computed, and the arguments, which are counted from the end.
        self.picks: list[int] = []
        self.others: list[tuple[int, Callable[[Any, Mapping[Any, int]], Any]]] = []
        computed: list[Any] = []
        for at, (result, fake) in enumerate(zip(lowering.results, fakes, strict=True)):
            if isinstance(result, Passed):
                pick = result.number - inputs
            elif id(result) in given:
                pick = given[id(result)] - inputs
            elif isinstance(result, weft.TensorOp):
                order = memory_order(fake)  # torch replays views of results by strides
                if order:
                    result = weft.transpose(result, order)
                    self.others.append((at, _permuted(inverse(order))))
                computed.append(result)
                pick = len(computed)
            else:
                self.others.append((at, _number(result)))
                pick = 0
            self.picks.append(pick)
        self.run: Calls | None = None
        if computed:
            run = transformer_of(backend).computation(computed, *lowering.parameters)
            if run.is_static:
                run.prepare()
            taken = list(zip(lowering.places, lowering.orders, strict=True))
            self.run = Calls(run, taken, draws=lowering.key is not None)

    def __call__(self, args: Sequence[Any], lengths: Mapping[Any, int]) -> list[Any]:
        computed = [] if self.run is None else self.run(args)
        pool = [None, *computed, *args]
        found = [pool[pick] for pick in self.picks]
        for at, take in self.others:
            found[at] = take(found[at], lengths)
        return found


def _flat(output: torch.fx.Node) -> Sequence[Any]:
    returned: Any = output.args[0]
    return returned if isinstance(returned, tuple | list) else (returned,)


def _permuted(order: Sequence[int]) -> Callable[..., Any]:
    """Take a result whose axes are in the order of memory."""
    return lambda result, lengths: result.permute(order)


def _number(result: Any) -> Callable[..., Any]:
    """Take None, a number, or what a length is in a call."""
    if not isinstance(result, Length):
        return lambda _, lengths: result
    return lambda _, lengths: evaluate(result, lengths)


def compile_aten(module: torch.fx.GraphModule, backend: Backend, strict: bool) -> Any:
    """Return a graph of ATen ops compiled, in pieces where there are ops that weft cannot compile.

    Those run in torch between the pieces, and a warning says so; with `strict`, they are an error.
    """
    lowering = Lowering(module, symbols_of(module)).run()
    if not lowering.refused or (symbols_of(module) and not any(map(_lacks, lowering.refused))):
        return CompiledGraph(module, backend, lowering)
    if strict:
        advice = "\nWithout strict=True they run in torch, between graphs of weft."
        require_all(lowering.refused, advice)
    warnings.warn(
        "ops that weft cannot compile run in torch, and break the graph there:\n"
        f"{described(lowering.refused)}",
        stacklevel=2,
    )
    return _in_pieces(module, backend, lowering.refused)


def _lacks(fx: torch.fx.Node) -> bool:
    """Return whether there is no rule for a node."""
    return rule_of(fx.target) is None


def _in_pieces(
    module: torch.fx.GraphModule, backend: Backend, refused: Mapping[torch.fx.Node, str]
) -> Any:
    """Return a graph cut around the nodes that are refused; what is between them is compiled."""
    parts: dict[torch.fx.Node, int] = {}
    number, was_refused = 0, False
    for fx in module.graph.nodes:
        if fx.op in ("placeholder", "output", "get_attr"):
            continue
        if fx.target is operator.getitem:
            parts[fx] = parts[fx.args[0]]
            continue
        number += (fx in refused) != was_refused
        was_refused = fx in refused
        parts[fx] = number
    outside = {f"submod_{parts[fx]}" for fx in refused}
    split: Any = split_module(module, module, parts.__getitem__)
    for name, child in list(split.named_children()):
        if name not in outside and isinstance(child, torch.fx.GraphModule):
            setattr(split, name, _Piece(CompiledGraph(child, backend)))
    return lambda *args: list(split(*args))


class _Piece(torch.nn.Module):  # type: ignore[misc]
    """A compiled piece of a graph, which returns its only result bare as torch's pieces do."""

    def __init__(self, compiled: CompiledGraph) -> None:
        super().__init__()
        self.compiled = compiled
        output = next(iter(compiled.module.graph.find_nodes(op="output")))
        self.is_single = not isinstance(output.args[0], tuple | list)

    def forward(self, *args: Any) -> Any:
        """Run the piece."""
        found = self.compiled(*args)
        return found[0] if self.is_single else found


def compile_graph(
    module: torch.fx.GraphModule,
    example_inputs: Sequence[Any],
    options: Mapping[str, Any] | None = None,
    **more: Any,
) -> Any:
    """Compile a graph of dynamo, and the graph of its gradients: ``torch.compile(backend="weft")``.

    Parameters
    ----------
    module
        The graph.
    example_inputs
        Its inputs, as fake tensors.
    options
        ``backend`` is a backend of weft by name, or a transformer, by default what
        `weft.make_transformer` takes; ``strict`` makes an op without a rule an error.
    **more
        What `torch.compile` passes beside: nothing that weft has a use for.

    Returns
    -------
    callable
        A function of the inputs that gives a tuple of results.

    Raises
    ------
    ArgumentError
        For an option that does not exist, or has another value, and for tensors that are not in the
        memory of the host.
    UnsupportedOp
        For an op without a rule, if `strict` is set, or one whose arguments no rule covers.
    """
    given = dict(options or {})
    for name in given:
        if name not in OPTIONS:
            known = f"{', '.join(OPTIONS)}.{did_you_mean(name, OPTIONS)}"
            raise ArgumentError(
                f"the backend weft of torch.compile has no option {name}; it has {known}"
            )
    backend, strict = given.get("backend"), given.get("strict", False)
    if not isinstance(strict, bool):
        raise ArgumentError(f"the option strict takes True or False, not {strict!r:.80}")

    def compiler(graph: torch.fx.GraphModule, _: Sequence[Any]) -> Any:
        return make_boxed_func(compile_aten(graph, backend, strict))

    autograd = aot_autograd(
        fw_compiler=compiler,
        bw_compiler=compiler,
        # It saves inputs rather than views of them, and little that is quickly computed again.
        partition_fn=min_cut_rematerialization_partition,
        decompositions=decompositions(),
    )
    run = autograd(module, example_inputs)

    def call(*args: Any) -> Any:
        results = run(*args)
        for each in results:
            node = each.grad_fn if isinstance(each, torch.Tensor) else None
            if node is not None and node.name() == "CompiledFunctionBackward":
                node.register_hook(_advise)
                break  # it is the node of all
        return results

    return call


def _advise(gradients: Sequence[Any], _: Any) -> None:
    """Have gradients that are differentiated, which AOTAutograd refuses, say what to do instead."""
    for each in gradients:
        if each is not None and each.grad_fn is not None:
            each.grad_fn.register_prehook(_refuse_double)


def _refuse_double(_: Any) -> None:
    raise GraphError(
        "AOTAutograd has no double backward: a gradient of what torch.compile compiled cannot be "
        "differentiated. Call the model that is not compiled where its gradients are, or compute "
        "them with weft.grad"
    )
