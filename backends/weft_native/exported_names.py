"""Names of exported functions and files that nothing in C has."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Collection
from functools import cache

from weft.support.quoting import identifier

PREFIX = "weft_"
"""What a name begins with that C or the exported text has for something else."""

_KEYWORDS = """
    alignas alignof and and_eq asm auto bitand bitor bool break case catch char char8_t char16_t
    char32_t class co_await co_return co_yield compl concept const const_cast consteval constexpr
    contract_assert constinit continue decltype default delete do double dynamic_cast else enum
    explicit export extern false final float for friend goto if import inline int long module
    mutable namespace new noexcept not not_eq nullptr operator or or_eq override private protected
    public register reinterpret_cast requires restrict return short signed sizeof static
    static_assert static_cast struct switch template this thread_local throw true try typedef typeid
    typename typeof typeof_unqual union unsigned using virtual void volatile wchar_t while xor
    xor_eq
"""
"""The words of C23 and C++26."""

_HEADERS = """
    assert complex ctype endian errno fcntl features fenv float inttypes iso646 limits locale malloc
    math memory regex setjmp signal stdalign stdarg stdatomic stdbit stdbool stdckdint stddef stdint
    stdio stdlib stdnoreturn string strings tgmath threads time uchar unistd wchar wctype
"""
"""Headers of C and POSIX, which a file of that name would hide."""

_MACROS = """
    alloca fpclassify fprintf_unlocked i386 isfinite isgreater isgreaterequal isinf
    isless islessequal islessgreater isnan isnormal isunordered kill_dependency
    linux main noreturn offsetof pow10 pow10f pow10l printf_unlocked signbit signbitf signbitl unix
    unreachable va_arg va_copy va_end va_list va_start
"""
"""Macros and functions of C and of its compilers that are in no library."""

_TAKEN = frozenset(f"{_KEYWORDS} {_HEADERS} {_MACROS}".split())

_COMMENTS = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)
_WORDS = re.compile(r"[A-Za-z_]\w*")


def words_of(text: str) -> set[str]:
    """Return the identifiers and keywords in C text, without those in comments."""
    return set(_WORDS.findall(_COMMENTS.sub(" ", text)))


def exported_name(name: str, words: Collection[str]) -> str:
    """Return the name of an exported function, as near to a name as C and its own text allow.

    `words` are those of the text. A name that C, its library or the text has for something else
    begins with `PREFIX`.

    >>> exported_name("my step", ()), exported_name("exp", ()), exported_name("3 steps", ())
    ('my_step', 'weft_exp', 'weft_3_steps')
    """
    title = identifier(name)
    if title[0].isdigit() or title.endswith("_t") or title in _TAKEN or _is_in_libraries(title):
        title = PREFIX + title
    while title in words:
        title = PREFIX + title
    return title


@cache
def _is_in_libraries(name: str) -> bool:
    """Whether the libraries of this process, such as that of C, have something of a name."""
    try:
        return hasattr(ctypes.CDLL(None), name)
    except (OSError, TypeError):  # a system whose process has no handle
        return False
