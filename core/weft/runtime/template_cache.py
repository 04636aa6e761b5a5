"""The cache of templates: programs that serve all lengths which lead to the same code."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

from weft import settings
from weft.cache.entry import CacheEntry
from weft.cache.serialization import Deserializer
from weft.cache.structure import NotCanonical
from weft.cache.template import Template
from weft.ir.guards import Guards

if TYPE_CHECKING:
    from weft.runtime.compile_cache import CompileCache, Key
    from weft.runtime.program import Family, Program
    from weft.runtime.transformer import Transformer

MANY = 32
"""The attempts at templates of a family after which further lengths are compiled each alone.

There are that many where the code depends on the values of lengths.
"""


def lower(program: Program, transformer: Transformer) -> None:
    """Run the passes on a program, plan it, and generate its code, which is not compiled."""
    compiler, target = transformer.graph_compiler, transformer.target
    program.graph = compiler.run_passes(program.captured, target, program.name)
    program.plan = compiler.plan(program.graph, target, program.donated)
    transformer.lower(program)


class TemplateCache:
    """The view of a compile cache on the templates of families."""

    def __init__(self, cache: CompileCache) -> None:
        self.cache = cache

    def provide(self, program: Program) -> bool:
        """Make a program run the code of a template, which is made if there is none for it.

        Returns whether that is possible.
        """
        family, transformer = program.family, self.cache.transformer
        # What is computed again to fit a limit on memory depends on the lengths.
        is_shared = transformer.shares_code and transformer.memory_limit is None
        if family is None or not is_shared or not self.cache.can_restore:
            return False
        is_known = any(self._restore(each, program, family) for each in self._known(family))
        return is_known or self._make(program, family)

    def _known(self, family: Family) -> Iterator[Template]:
        """Yield the templates of a family: those that it has, those offered, those on disk."""
        with suppress(NotCanonical):
            key = self._key(family)
            yield from tuple(family.templates)
            for content in self.cache.offered.pop(key.digest, ()):
                if self._read(family, key, content):
                    yield family.templates[-1]
            while self._read_next(family, key):
                yield family.templates[-1]

    def _read_next(self, family: Family, key: Key) -> bool:
        """Add the next template of a family that is in the cache; returns whether there is one."""
        contents = self.cache.contents(key.numbered(len(family.templates)))
        return any(self._read(family, key, content) for content in contents)

    def _read(self, family: Family, key: Key, content: bytes) -> bool:
        try:
            template = Template(CacheEntry.from_content(content), key.modules)
        except Exception as error:
            self._warn(error)
            return False
        family.templates.append(template)
        return True

    def _key(self, family: Family) -> Key:
        """Return the key of a family, which is computed again when the passes have changed."""
        compiler = self.cache.transformer.graph_compiler
        if family.key is None or family.compiler is not compiler:
            family.key = self.cache.key_of(family.graph, True, family.donated)
            family.compiler, family.attempts = compiler, 0
            family.templates.clear()
        key: Key = family.key
        return key

    def _make(self, program: Program, family: Family) -> bool:
        if family.attempts >= MANY or settings.DUMP.value:
            return False
        family.attempts += 1
        try:
            key = self._key(family)
            traced, guards = self._traced(program, family)
            serializer = traced.serializer(key.structure.twin(traced.captured))
            entry = serializer.entry(self.cache.transformer.export(traced, serializer))
            template = Template.of(entry, guards, key.modules)
            if not self._use(template, program, family):
                return False
        except Exception:
            # The program depends on the values of lengths, or a plugin computes with them what only
            # plain integers can. Any other error comes again when the program is compiled alone.
            return False
        if self.cache.is_on:
            self.cache.write(key.numbered(len(family.templates)), template.entry.content())
        family.templates.append(template)
        return True

    def _traced(self, program: Program, family: Family) -> tuple[Program, Guards]:
        """Return a program with traced lengths, whose code is generated but not compiled."""
        transformer, guards = self.cache.transformer, Guards()
        solution = guards.trace({each: program.solution[each] for each in family.graph.symbols})
        found = type(program)(program.name, family.graph.specialize(solution), solution)
        found.donated = family.donated
        lower(found, transformer)
        return found, guards

    def _restore(self, template: Template, program: Program, family: Family) -> bool:
        """Use a known template, unless it is damaged."""
        try:
            return self._use(template, program, family)
        except Exception as error:
            self._warn(error)
            return False

    def _warn(self, error: Exception) -> None:
        self.cache.cache.warn(f"a compiled program is not usable: {error!r}")

    def _use(self, template: Template, program: Program, family: Family) -> bool:
        """Make a program run the code of a template, if it serves the program's lengths."""
        numbers = template.numbers(family.lengths(program.solution))
        if numbers is None:
            return False
        key = self._key(family)
        structure = key.structure.twin(program.captured)
        entry = template.filled(numbers)
        self.cache.run_entry(program, Deserializer(structure, entry, key.modules, numbers))
        program.template = template
        return True
