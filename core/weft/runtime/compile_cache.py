"""The compile cache: looks programs up in this process and on disk, and stores new ones.

The key of a program covers everything that its code depends on: the graph's structure, the backend
and its options, the target, the passes, and the version of the code of all these. If any of it has
no canonical description, the program is not cached.
"""

from __future__ import annotations

import functools
import os
import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from copy import copy
from dataclasses import fields
from typing import TYPE_CHECKING

from weft import plugins, settings
from weft.cache.entry import CacheEntry
from weft.cache.fingerprint import fingerprint
from weft.cache.serialization import Deserializer
from weft.cache.store import Cache, is_off, open_cache
from weft.cache.structure import Canonicalizer, NotCanonical, Structure, structure_of
from weft.errors import PluginError
from weft.ir.graph import Graph
from weft.ir.lengths import Symbol
from weft.passes.interface import GraphPass
from weft.plan.donated_memory import NOTHING, Donated
from weft.plugins.blame import guarded, origin_of
from weft.runtime.template_cache import TemplateCache
from weft.support.digest import digest_of
from weft.support.locks import renewed

if TYPE_CHECKING:
    from weft.runtime.program import Program
    from weft.runtime.transformer import Transformer

REPLACED = ("run_registered_graph_passes", "transform_ordered_ops")
"""What is not called for a program that is found; who extends it must extend `restore` too."""


class MemoryCache:
    """The compiled programs of this process as bytes, with LRU eviction."""

    LIMIT = 2**26

    def __init__(self) -> None:
        self.contents: OrderedDict[str, bytes] = OrderedDict()
        self.held = 0
        self.lock = renewed(threading.RLock())

    def read(self, key: str) -> bytes | None:
        """Return the content under a key, or None."""
        with self.lock:
            content = self.contents.get(key)
            if content is not None:
                self.contents.move_to_end(key)
            return content

    def write(self, key: str, content: bytes) -> None:
        """Store content under a key, unless it would evict all other content."""
        with self.lock:
            self.held -= len(self.contents.pop(key, b""))
            if len(content) * 4 <= self.LIMIT:
                self.contents[key] = content
                self.held += len(content)
            while self.held > self.LIMIT:
                self.held -= len(self.contents.popitem(last=False)[1])


_memory = MemoryCache()


class Key:
    """The key of a program."""

    def __init__(self, text: str, structure: Structure, modules: Iterable[str]) -> None:
        self.structure = structure
        self.modules = frozenset(modules)
        self.digest = digest_of(text.encode())
        self.on_disk: str | None = None
        """The name of its file; None for what another process could not know to be the same."""
        with suppress(NotCanonical):
            self.on_disk = digest_of(f"{text}\n{fingerprint(self.modules)}".encode())

    def numbered(self, number: int) -> Key:
        """Return the key of one of several entries."""
        found = copy(self)
        found.digest = digest_of(f"{self.digest} {number}".encode())
        if self.on_disk is not None:
            found.on_disk = digest_of(f"{self.on_disk} {number}".encode())
        return found


class CompileCache:
    """The view of one transformer on the cache.

    `option` is the transformer's ``cache=``: whether to use the default folder, or the folder.

    Attributes
    ----------
    templates
        Its view on programs of unknown lengths.
    offered
        The contents of an artifact, by key.
    """

    def __init__(self, transformer: Transformer, option: bool | str | os.PathLike[str]) -> None:
        self.transformer = transformer
        self.option = option
        self.templates = TemplateCache(self)
        self._missed: dict[Program, Key] = {}
        self.offered: dict[str, list[bytes]] = {}

    @property
    def is_on(self) -> bool:
        """Whether the cache is on."""
        is_wanted = self.option is not False and not is_off()
        # Plugins that were registered by hand are not known to another process.
        return is_wanted and self.can_restore and not plugins.any_by_hand()

    @property
    def can_restore(self) -> bool:
        """Whether the backend restores programs that were exported."""
        return _can_restore(self.transformer)

    @property
    def cache(self) -> Cache:
        """The folder on disk."""
        return open_cache(None if isinstance(self.option, bool) else self.option)

    def missing(self, programs: Iterable[Program]) -> list[Program]:
        """Restore programs from the cache, and return those that are not there."""
        return [
            each
            for each in programs
            if not (each.is_restored or (each.recorder is None and self.find(each)))
        ]

    def find(self, program: Program) -> bool:
        """Restore a program from the cache, or let a template serve it; returns whether it runs."""
        self._missed.pop(program, None)
        if self.templates.provide(program):
            return True
        if not (self.is_on or self.offered):
            return False
        try:
            key = self._missed[program] = self._key(program)
        except NotCanonical:
            return False
        for content in self.contents(key):
            if self._restore(program, key, content):
                del self._missed[program]
                return True
        return False

    def contents(self, key: Key) -> Iterator[bytes]:
        """Yield what the cache has under a key: what was offered, then from memory or disk."""
        yield from self.offered.get(key.digest, ())
        if not self.is_on or settings.DUMP.value:
            return  # the dumps are wanted, and only passes that run make them
        content = _memory.read(key.digest)
        if content is not None:
            yield content
        content = self.cache.read(key.on_disk) if key.on_disk else None
        if content is not None:
            _memory.write(key.digest, content)
            yield content

    def _restore(self, program: Program, key: Key, content: bytes) -> bool:
        try:
            entry = CacheEntry.from_content(content)
            self.run_entry(program, Deserializer(key.structure, entry, key.modules))
        except Exception as error:
            self.cache.warn(f"a compiled program of {program.name} is not usable: {error!r}")
            return False
        return True

    def run_entry(self, program: Program, deserializer: Deserializer) -> None:
        """Make a program run what an entry has."""
        run = self.transformer.restore(program, deserializer)
        program.run = guarded(run, origin_of(type(self.transformer)), f"in {program.name}")
        program.arena_size, program.buffers = deserializer.arena_size, deserializer.buffers
        program.is_restored = True
        program.later = functools.partial(self.transformer.plan_again, program, deserializer.order)

    def keep(self, programs: Iterable[Program]) -> None:
        """Store newly compiled programs."""
        for program in programs:
            key = self._missed.pop(program, None)
            if key is None or not self.is_on:
                continue
            with suppress(NotCanonical):
                content = self._export(program, key)
                if content is not None:
                    self.write(key, content)
        self._missed.clear()

    def write(self, key: Key, content: bytes) -> None:
        """Keep content under a key."""
        _memory.write(key.digest, content)
        if key.on_disk:
            self.cache.write(key.on_disk, content)

    def entry_content(
        self, program: Program, graph: Graph, solution: Mapping[Symbol, int]
    ) -> tuple[str, bytes] | None:
        """Return the key and the content of a compiled program, for a graph of equal structure.

        `solution` has the program's lengths of that graph. Returns None for a program that no other
        process could restore.
        """
        if not self.can_restore:
            return None
        try:
            if program.template is not None:
                return self._key(program, graph).digest, program.template.entry.content()
            program_key = self._key(program)
            key = self._key(program, graph.specialized(solution)).digest
            # What a restored program refers to may have been planned again.
            content = (
                next(self.contents(program_key), None)
                if program.is_restored
                else self._export(program, program_key)
            )
        except NotCanonical:
            return None
        return None if content is None else (key, content)

    def _export(self, program: Program, key: Key) -> bytes | None:
        serializer = program.serializer(key.structure)
        code = self.transformer.export(program, serializer)
        return None if code is None else serializer.entry(code).content()

    def offer(self, key: str, content: bytes) -> None:
        """Use a compiled program from elsewhere, which the caller trusts, under a key."""
        self.offered.setdefault(key, []).append(content)

    def _key(self, program: Program, graph: Graph | None = None) -> Key:
        """Return the key of a program, or what it is for a graph of equal structure."""
        is_family = program.template is not None
        return self.key_of(graph or program.captured, is_family, program.donated)

    def key_of(self, graph: Graph, is_family: bool = False, donated: Donated = NOTHING) -> Key:
        """Return the key of a graph, whose lengths are unknown in a family's."""
        structure = structure_of(graph, all_values=False)
        describe = Canonicalizer()
        transformer = self.transformer
        pipeline = transformer.graph_compiler.pipeline
        text = "\n".join(
            [
                structure.digest,
                str(is_family),
                str(sorted(donated.items())),
                describe(type(transformer)),
                describe.sequence(transformer.code_options()),
                describe(transformer.memory_limit),
                _target(transformer, describe),
                *(_pass(each, describe) for each in pipeline.names(transformer.target)),
            ]
        )
        return Key(text, structure, structure.modules | describe.modules)


def _pass(graph_pass: str | GraphPass, describe: Canonicalizer) -> str:
    if not isinstance(graph_pass, str):
        if not graph_pass.is_as_defined:
            raise NotCanonical(f"methods of {graph_pass.name} were set after its class was defined")
        return describe.by_name(type(graph_pass)) + describe(vars(graph_pass))
    try:
        address = plugins.address_of(plugins.PASSES, graph_pass, is_default=True)
    except PluginError as error:
        raise NotCanonical(str(error)) from error  # loading it says so better
    describe.modules.add(address.partition(":")[0])
    return f"{graph_pass} {address}"


def _target(transformer: Transformer, describe: Canonicalizer) -> str:
    """Return the description of a target; a method is described by its class."""
    target = transformer.target
    values = []
    for each in fields(target):
        value = getattr(target, each.name)
        owner = getattr(value, "__self__", None)
        method = (type(owner), value.__name__) if owner is not None else value
        values.append(dict(method) if isinstance(method, Mapping) else method)
    return describe.sequence(values)


def _can_restore(transformer: Transformer) -> bool:
    """Whether a backend has `export`, and no subclass replaces the steps that restoring skips."""
    mro = type(transformer).__mro__

    def defined(name: str) -> int:
        return next(number for number, each in enumerate(mro) if name in vars(each))

    exports = defined("export")
    is_base = mro[exports].__module__ == "weft.runtime.interface"
    as_it_was = vars(transformer).keys().isdisjoint(REPLACED)
    return not is_base and as_it_was and all(exports <= defined(name) for name in REPLACED)
