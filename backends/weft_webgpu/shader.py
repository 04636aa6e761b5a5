"""A compute shader being written: its tensors, its lines, and how it finds elements.

Tensors of one buffer share its binding, because WebGPU allows no two writable bindings to overlap.
Which do is known when a launch is bound, so a kernel reads words by functions of each parameter,
which `module_text` writes. Their places in the buffers are in a uniform buffer and not in the text:
equal kernels at other places are one shader.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from weft.ir.description import TensorDescription, row_major
from weft.ir.dtypes import DType
from weft.plan.plan import Step
from weft_c.processor import Processor
from weft_c.source.functions import Function, GPUKernel, HostCall, Parameter
from weft_webgpu import wgsl

GROUPS_ACROSS = 32768
"""Work groups in the first dimension of a launch; more go into the second."""
ERROR_WORD = "error"
"""The name of the parameter that is a word for errors."""

RAISE = """\
fn raise_NAME(i: i32, v: i32) {
  loop {
    let old = atomicLoad(&WORD);
    if (bitcast<i32>(old) >= v) { break; }
    if (atomicCompareExchangeWeak(&WORD, old, bitcast<u32>(v)).exchanged) { break; }
  }
}"""
"""A function that makes a signed word at least as large as a value."""


class Lowering:
    """The lowering of one step: a rule appends launches and host calls to `work`."""

    def __init__(self, step: Step, processor: Processor) -> None:
        self.step = step
        self.processor = processor
        self.work: list[GPUKernel | HostCall] = []
        self._taken = 0

    def scratch(self, shape: Sequence[int], dtype: DType) -> TensorDescription:
        """Return a tensor in the scratch memory of the step, after those taken before."""
        memory = self.step.workspace
        assert memory is not None, "the op has a function of its scratch memory"
        strides, offset = row_major(shape, dtype.itemsize), memory.offset + self._taken
        tensor = TensorDescription(tuple(shape), dtype, strides, offset, memory.base)
        self._taken += -(-tensor.nbytes // 256) * 256
        return tensor


@dataclass(frozen=True)
class Element:
    """An element of a tensor: the parameter, and its index in the buffer, in elements."""

    name: str
    index: str
    dtype: DType

    @property
    def value(self) -> str:
        """The expression that loads it."""
        return wgsl.load(self.name, self.index, self.dtype)

    def store(self, value: str) -> str:
        """Return the statement that stores it, and leaves its neighbors in a word alone."""
        return wgsl.store(self.name, self.index, value, self.dtype)


class Shader:
    """The text of a shader."""

    def __init__(self, lowering: Lowering, title: str, group: int = 64) -> None:
        self.lowering = lowering
        self.title = title
        self.group = group
        self.declarations: list[str] = []
        self.lines: list[str] = []
        self._names: dict[TensorDescription, str] = {}
        self._written: set[str] = set()
        self._reports = False

    def line(self, text: str) -> None:
        """Add a line."""
        self.lines.append(text)

    def coordinates(self, index: str, shape: Sequence[int], names: Sequence[str]) -> None:
        """Add lines that name the coordinates of a place that is counted in row-major order."""
        stride = 1
        for name, length in reversed(list(zip(names, shape, strict=True))):
            quotient = index if stride == 1 else f"{index} / {stride}"
            self.line(f"let {name} = ({quotient}) % {max(length, 1)};")
            stride *= max(length, 1)

    def name(self, layout: TensorDescription, written: bool = False) -> str:
        """Return the parameter of a tensor."""
        name = self._names.setdefault(layout, f"p{len(self._names)}")
        if written:
            self._written.add(name)
        return name

    def element(
        self, layout: TensorDescription, coordinates: Sequence[str], written: bool = False
    ) -> Element:
        """Return an element of a tensor; a coordinate may be any expression."""
        name = self.name(layout, written)
        size = layout.dtype.itemsize
        terms = [
            f"({where}) * {stride // size}" if stride != size else f"({where})"
            for where, stride in zip(coordinates, layout.strides, strict=True)
            if stride and where != "0"
        ]
        return Element(name, " + ".join([*terms, f"{name}_at"]), layout.dtype)

    def report(self) -> str:
        """Return the statement that reports an index out of range."""
        self._reports = True
        return f"set_{ERROR_WORD}({ERROR_WORD}_at, 1u);"

    def launch(self, groups: int) -> None:
        """End the shader, and append a launch of so many work groups."""
        step = self.lowering.step
        body = "\n".join("  " + line for line in self.lines)
        parameters = [Parameter(n, "u32", n in self._written) for n in self._names.values()]
        args: list[TensorDescription | None] = list(self._names)
        if self._reports:
            parameters.append(Parameter(ERROR_WORD, "u32", True))
            args.append(None)
        helpers = tuple(dict.fromkeys(self.declarations))
        function = Function(self.title, tuple(parameters), body, self.group, helpers=helpers)
        self.lowering.work.append(GPUKernel(function, tuple(args), groups * self.group, (step.op,)))


def module_text(function: Function, numbers: Sequence[int]) -> str:
    """Return the module of a kernel, given the number of the buffer of each parameter."""
    text = "\n".join([*function.helpers, function.body])
    called = set(re.findall(r"\b\w+(?=\()", text))
    names = [each.name for each in function.parameters]
    shared = {
        number
        for name, number in zip(names, numbers, strict=True)
        if called & {f"put_{name}", f"swap_{name}", f"raise_{name}"}
    }
    lines = [
        "@group(0) @binding(0) var<uniform> places: array<vec4<i32>, "
        f"{max(-(-len(names) // 4), 1)}>;"
    ]
    for number in sorted(set(numbers)):
        kind = "atomic<u32>" if number in shared else "u32"
        lines.append(
            f"@group(0) @binding({number + 1}) var<storage, read_write> b{number}: array<{kind}>;"
        )
    for name, number in zip(names, numbers, strict=True):
        word = f"b{number}[i]"
        if name in called:
            read = f"atomicLoad(&{word})" if number in shared else word
            lines.append(f"fn {name}(i: i32) -> u32 {{ return {read}; }}")
        if f"set_{name}" in called:
            write = f"atomicStore(&{word}, v)" if number in shared else f"{word} = v"
            lines.append(f"fn set_{name}(i: i32, v: u32) {{ {write}; }}")
        if f"put_{name}" in called:
            lines.append(
                f"fn put_{name}(i: i32, mask: u32, v: u32) "
                f"{{ atomicAnd(&{word}, ~mask); atomicOr(&{word}, v); }}"
            )
        if f"swap_{name}" in called:
            lines.append(
                f"fn swap_{name}(i: i32, old: u32, wanted: u32) -> bool "
                f"{{ return atomicCompareExchangeWeak(&{word}, old, wanted).exchanged; }}"
            )
        if f"raise_{name}" in called:
            lines.append(RAISE.replace("NAME", name).replace("WORD", word))
    begin = [f"  let {name}_at = places[{n // 4}].{'xyzw'[n % 4]};" for n, name in enumerate(names)]
    main = [
        f"@compute @workgroup_size({function.group})",
        "fn main(@builtin(workgroup_id) group: vec3<u32>, "
        "@builtin(local_invocation_index) invocation: u32) {",
        "  zero = group.z;",
        "  let lane = i32(invocation);",
        f"  let group_number = i32(group.x + group.y * {GROUPS_ACROSS}u);",
        f"  let thread = group_number * {function.group} + lane;",
        *begin,
        function.body,
        "}",
    ]
    return "\n".join([*lines, wgsl.prelude(text), *function.helpers, *main, ""])


class Stores:
    """Stores of neighboring elements by one invocation, which fills words of smaller ones."""

    def __init__(self, shader: Shader, layouts: Sequence[TensorDescription], count: int) -> None:
        self.shader = shader
        self.count = count
        self.layouts = layouts
        self.per = max((4 // min(each.dtype.itemsize, 4) for each in layouts), default=1)
        self.threads = -(-count // self.per)
        self.groups = -(-self.threads // shader.group)

    def begin(self) -> None:
        """Add the head of the loop, in which `i` counts the elements."""
        line = self.shader.line
        line(f"if (thread >= {self.threads}) {{ return; }}")
        for number, layout in enumerate(self.layouts):
            if layout.dtype.itemsize < 4:
                line(f"var word{number} = 0u;")
        if self.per == 1:
            line("{ let i = thread;")
            return
        line(f"for (var i = thread * {self.per}; i < thread * {self.per} + {self.per}; i++) {{")
        line(f"if (i >= {self.count}) {{ break; }}")

    def store(self, number: int, coordinates: Sequence[str], value: str) -> None:
        """Add the store of a result's element."""
        layout = self.layouts[number]
        element = self.shader.element(layout, coordinates, written=True)
        size = layout.dtype.itemsize
        if size >= 4:
            self.shader.line(element.store(value))
            return
        per, mask = 4 // size, (1 << 8 * size) - 1
        word, bits = f"word{number}", f"({wgsl.bits_of(value, layout.dtype)} & {mask}u)"
        self.shader.line(f"{word} = {word} | ({bits} << (u32(i % {per}) * {8 * size}u));")
        self.shader.line(
            f"if (i % {per} == {per - 1} || i == {self.count - 1}) {{ set_{element.name}("
            f"{element.name}_at / {per} + i / {per}, {word}); {word} = 0u; }}"
        )

    def end(self) -> None:
        """Add the end of the loop."""
        self.shader.line("}")


def pointwise(
    lowering: Lowering,
    title: str,
    out: TensorDescription,
    value: Callable[[Shader, list[str]], str],
) -> None:
    """Append the launch that computes each element of a result by itself."""
    count = math.prod(out.shape)
    if not count:
        return
    shader = Shader(lowering, title)
    stores = Stores(shader, [out], count)
    names = [f"d{axis}" for axis in range(len(out.shape))]
    stores.begin()
    shader.coordinates("i", out.shape, names)
    stores.store(0, names, value(shader, names))
    stores.end()
    shader.launch(stores.groups)


def each_point(
    lowering: Lowering,
    title: str,
    shape: Sequence[int],
    write: Callable[[Shader, list[str]], None],
) -> None:
    """Append the launch in which an invocation runs lines for each point of a shape."""
    count = math.prod(shape)
    if not count:
        return
    shader = Shader(lowering, title)
    names = [f"d{axis}" for axis in range(len(shape))]
    shader.line(f"if (thread >= {count}) {{ return; }}")
    shader.coordinates("thread", shape, names)
    write(shader, names)
    shader.launch(-(-count // shader.group))
