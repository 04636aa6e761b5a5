"""Programs with functions as newcomers from NumPy, JAX and PyTorch write them, and their errors.

Each names the line that ends in ``# here``, what happened and the way out.
"""

from __future__ import annotations

import contextlib
import io
import sys
import threading
from pathlib import Path
from textwrap import dedent
from typing import Any

import numpy as np
import pytest

import weft
from weft.errors import ArgumentError, AxesError, DTypeError, GradientError
from weft.functional import retraces
from weft.functional.tracing import is_tracing
from weft.ir import scope
from weft.support import keyword_hints

VECTOR = np.arange(3, dtype=np.float32)
MATRIX = np.ones((2, 3), np.float32)

ERRORS: dict[str, tuple[str, type[Exception], tuple[str, ...]]] = {
    # A traced value where Python needs one
    "if on a value": (
        """
        @weft.jit
        def relu(x):
            if x.sum() > 0:  # here
                return x
            return 0 * x
        relu(VECTOR)
        """,
        DTypeError, ("no truth value", "where()", "cond()", "while_loop()"),
    ),
    "if on a flag": (
        """
        @weft.jit
        def layer(x, training=False):
            return x * 2 if training else x  # here
        layer(VECTOR, training=True)
        """,
        DTypeError, ("no truth value", "jit(layer, static_argnames=('training',))"),
    ),
    "if in a helper": (
        """
        def is_large(x):
            return x if x > 1 else -x  # here
        weft.jit(lambda x, limit: is_large(x * limit))(1.0, 2.0)
        """,
        DTypeError, ("no truth value", "static_argnames=('x', 'limit')"),
    ),
    "while": (
        """
        @weft.jit
        def double(x):
            while x.max() < 10:  # here
                x = x * 2
            return x
        double(VECTOR)
        """,
        DTypeError, ("while_loop()",),
    ),
    "and between conditions": (
        "weft.jit(lambda x: weft.where(x > 0 and x < 2, x, 0))(VECTOR)  # here",
        DTypeError, ("&, | and ~ take the place of `and`",),
    ),
    "Python's max": ("weft.jit(lambda x, y: max(x.sum(), y))(VECTOR, 2.0)  # here", DTypeError,
                     ("no truth value", "where()")),
    "assert": (
        """
        @weft.jit
        def root(x):
            assert (x >= 0).all(), "negative"  # here
            return weft.sqrt(x)
        root(VECTOR)
        """,
        DTypeError, ("no truth value",),
    ),
    "int of an argument": (
        """
        @weft.jit
        def ones(x, n):
            return x + weft.ones((int(n),))  # here
        ones(1.0, 3)
        """,
        DTypeError, ("no integer value", "jit(ones, static_argnames=('n',))"),
    ),
    "range of an argument": (
        """
        @weft.jit
        def power(x, n):
            for _ in range(n):  # here
                x = x * x
            return x
        power(2.0, 3)
        """,
        DTypeError, ("no integer value", "fori_loop()", "static_argnames=('n',)"),
    ),
    "an argument as a length": (
        """
        def table(n):
            return weft.zeros((n, n))  # here
        weft.jit(table)(3)
        """,
        DTypeError, ("no integer value", "jit(table, static_argnames=('n',))"),
    ),
    "an argument in reshape": (
        "weft.jit(lambda x, n: x.reshape(n, -1))(VECTOR, 3)  # here",
        DTypeError, ("no integer value", "static_argnames=('n',)"),
    ),
    "an argument as the end of a slice": (
        "weft.jit(lambda x, n: x[:n])(VECTOR, 2)  # here",
        DTypeError, ("no integer value", "static_argnames=('n',)"),
    ),
    "an argument as an axis": (
        "weft.jit(lambda x, axis: x.sum(axis))(MATRIX, 1)  # here",
        DTypeError, ("cannot be iterated", "static_argnames=('axis',)"),
    ),
    "an argument in arange": (
        "weft.jit(lambda n: weft.arange(n))(3)  # here",
        DTypeError, ("no integer value", "static_argnames=('n',)"),
    ),
    "an index of a list": (
        """
        RATES = [0.1, 0.2]
        weft.jit(lambda x, epoch: x * RATES[epoch])(VECTOR, 1)  # here
        """,
        DTypeError, ("no integer value", "take()", "static_argnames=('epoch',)"),
    ),
    "an index of NumPy's array": (
        """
        table = np.arange(5.0)
        weft.jit(lambda i: table[i])(2)  # here
        """,
        DTypeError, ("value as an array", "weft's functions", "static_argnames=('i',)"),
    ),
    "a static argument of another function": (
        """
        pad = weft.jit(lambda x, n: weft.concat([x, weft.zeros((n,))]), static_argnames="n")  # here
        weft.jit(lambda x, n: pad(x, n))(VECTOR, 2)
        """,
        DTypeError, ("no integer value", "static_argnames=('n',)"),
    ),
    "what all examples share": (
        """
        def first(x, n):
            return x[:int(n)]  # here
        weft.jit(lambda x, n: weft.vmap(first, in_axes=(0, None))(x, n))(MATRIX, 2)
        """,
        DTypeError, ("no integer value", "static_argnames=('n',)"),
    ),
    "a value of each example": (
        "weft.vmap(lambda x: x if x > 0 else -x)(VECTOR)  # here",
        DTypeError, ("no truth value", "where the function has returned it"),
    ),
    "float of a loss": (
        """
        @weft.jit
        def loss(x):
            return float(x.sum())  # here
        loss(VECTOR)
        """,
        DTypeError, ("value as a number", "where the function has returned it"),
    ),
    "math": (
        "import math; weft.jit(lambda x: math.sqrt(x.sum()))(VECTOR)  # here",
        DTypeError, ("take the place of those of math",),
    ),
    "round": ("weft.jit(lambda x: round(x.sum(), 2))(VECTOR)  # here", DTypeError,
              ("value as a number", "weft.round()")),
    "a formatted loss": (
        """
        @weft.jit
        def loss(x):
            y = x.sum()
            print(f"{y:.2f}")  # here
            return y
        loss(VECTOR)
        """,
        DTypeError, ("no value to format", "weft.print_op() prints"),
    ),
    "len of an unknown axis": (
        'weft.jit(lambda x: x.sum() / len(x), dynamic="batch")(VECTOR)  # here',
        DTypeError, ("length batch is unknown until a call", "x.shape[0]"),
    ),
    "range over an unknown axis": (
        """
        @weft.jit(dynamic="batch")
        def total(x):
            return sum(x[i] for i in range(x.shape[0]))  # here
        total(VECTOR)
        """,
        DTypeError, ("length batch is unknown", "scan()", "vmap()"),
    ),
    "rows of an unknown axis": (
        'weft.jit(lambda x: [row * 2 for row in x], dynamic="batch")(MATRIX)  # here',
        DTypeError, ("length batch is unknown", "scan()"),
    ),
    "an array of NumPy": ("weft.jit(lambda x: np.array(x) + 1)(VECTOR)  # here", DTypeError,
                          ("value as an array", "take the place of NumPy's")),
    "NumPy's array of traced values": (
        "weft.jit(lambda x: np.array([x[0], x[1]]))(VECTOR)  # here",
        DTypeError, ("value as an array", "stack()"),
    ),
    "a traced value put into an array": (
        """
        @weft.jit
        def doubled(x):
            out = np.zeros(3)
            for i in range(3):
                out[i] = 2 * x[i]  # here
            return out
        doubled(VECTOR)
        """,
        ValueError, ("setting an array element", "value as", "where the function has returned it"),
    ),
    "an array that is added to": (
        """
        @weft.jit
        def total(x):
            out = np.zeros(3)
            out += x  # here
            return out
        total(VECTOR)
        """,
        ArgumentError, ("out= cannot be written", "builds a new tensor"),
    ),
    "a function that weft does not have": (
        "weft.jit(lambda x: np.interp(x, [0, 1], [0, 1]))(VECTOR)  # here",
        DTypeError, ("no function in the place of numpy.interp",),
    ),
    "nonzero without a size": ("weft.jit(lambda x: weft.nonzero(x))(VECTOR)  # here", TypeError,
                               ("missing", "size is how many there are at most")),
    "NumPy's assertion": (
        "weft.jit(lambda x: np.testing.assert_allclose(x, 1))(VECTOR)  # here",
        DTypeError, ("value as an array", "where the function has returned it"),
    ),
    "a mask as an index": ("weft.jit(lambda x: x[x > 1])(VECTOR)  # here", ArgumentError,
                           ("where() selects by a mask",)),
    "a value outside of functions": ("float(weft.sum(VECTOR))  # here", DTypeError,
                                     ("a function that weft.jit runs returns its value",)),
    # Values that leave their trace
    "a list of traced values": (
        """
        history = []
        @weft.jit
        def step(x):
            history.append(x.sum())
            return x
        step(VECTOR)
        print(float(history[0]))  # here
        """,
        DTypeError, ("built in the trace of step", "let step return it"),
    ),
    "a global": (
        """
        @weft.jit
        def first(x):
            global last
            last = x * 2
            return x
        @weft.jit
        def second(x):
            return x + last  # here
        first(VECTOR)
        second(VECTOR)
        """,
        ArgumentError, ("second uses a value", "in the trace of first", "argument x", "AddOp"),
    ),
    "an attribute": (
        """
        class Model:
            total = 0.0
            def step(self, x):
                self.total = self.total + x.sum()
                return x
        model = Model()
        weft.jit(model.step)(VECTOR)
        print(f"{model.total:.1f}")  # here
        """,
        DTypeError, ("built in the trace of step", "let step return it"),
    ),
    "a list in a loop": (
        """
        def positions(x):
            found = []
            def body(i, carry):
                found.append(carry["h"])
                return {"h": carry["h"] * 2}
            weft.fori_loop(0, 3, body, {"h": x})
            return found[0] + 1  # here
        weft.jit(positions)(1.0)
        """,
        ArgumentError, ("in the trace of body", "argument carry['h']", "let body return it"),
    ),
    "an example of vmap": (
        """
        seen = []
        def square(x):
            seen.append(x)
            return x * x
        @weft.jit
        def squares(x):
            return weft.vmap(square)(x) + seen[0]  # here
        squares(VECTOR)
        """,
        ArgumentError, ("in the trace of square", "argument args[0]"),
    ),
    "a default that grows": (
        """
        @weft.jit
        def mean(x, seen=[]):
            seen.append(x)
            return sum(seen)  # here
        mean(VECTOR)
        mean(VECTOR.astype("float64"))
        """,
        ArgumentError, ("mean uses a value", "in the trace of mean"),
    ),
    "a recursion": (
        """
        @weft.jit
        def factorial(n):
            return weft.where(n <= 1, 1, n * factorial(n - 1))
        factorial(3)  # here
        """,
        ArgumentError, ("factorial calls itself without end", "weft.while_loop"),
    ),
    # Control flow
    "values for cond": (
        "weft.jit(lambda x: weft.cond(x.sum() > 0, x, -x))(VECTOR)  # here",
        ArgumentError, ("is not a function", "where() for values"),
    ),
    "cond by element": (
        "weft.jit(lambda x: weft.cond(x > 0, lambda: x, lambda: -x))(VECTOR)  # here",
        DTypeError, ("bool scalar", "where() chooses by elements", "any()"),
    ),
    "a branch that takes no operand": (
        "weft.jit(lambda x: weft.cond(x > 0, lambda: x, lambda: -x, x))(1.0)  # here",
        ArgumentError, ("called as <lambda>(operand 0)", "too many positional arguments"),
    ),
    "a branch without return": (
        """
        def grow(x):
            x = x * 2
        @weft.jit
        def f(x):
            return weft.cond(x > 0, lambda x: x, grow, x)  # here
        f(1.0)
        """,
        ArgumentError, ("the second has the structure None", "without return returns None"),
    ),
    "branches of other keys": (
        "weft.jit(lambda x: weft.cond(x > 0, lambda: {'a': x}, lambda: {'b': x}))(1.0)  # here",
        ArgumentError, ("result['a'] is missing", "result['b'] is one too many"),
    ),
    "branches of other shapes": (
        "weft.jit(lambda i, x: weft.switch(i, [weft.sin, weft.sum], x))(1, VECTOR)  # here",
        AxesError, ("result has Axes(3) in one branch", "Axes() in the other"),
    ),
    "branches of other dtypes": (
        "weft.jit(lambda x: weft.cond(x > 0, lambda: x, lambda: x.astype('int32')))(1.0)  # here",
        DTypeError, ("result is float32 in one branch", "int32", ".astype('float32')"),
    ),
    "switch by a float": (
        "weft.jit(lambda i, x: weft.switch(i, [weft.sin, weft.cos], x))(1.0, VECTOR)  # here",
        DTypeError, ("index must be an integer scalar, not float32",),
    ),
    "a carry that becomes a float": (
        """
        def body(carry, x):
            return {"n": carry["n"] + x, "y": x}, None  # here
        weft.jit(lambda x: weft.scan(body, {"n": np.int32(0), "y": 0.0}, x))(VECTOR)
        """,
        DTypeError, ("carry['n'] is int32, but float32 after", ".astype('float32')",
                     ".astype('int32')"),
    ),
    "a carry that grows": (
        """
        def body(carry, x):
            return weft.concat([carry, x[None]]), None  # here
        weft.jit(lambda x: weft.scan(body, weft.zeros((0,)), x))(VECTOR)
        """,
        AxesError, ("carry has Axes(0), but Axes(1) after",),
    ),
    "a carry of another structure": (
        "weft.jit(lambda x: weft.scan(lambda c, x: ({**c, 'x': x}, x), {'y': 0.0}, x))"
        "(VECTOR)  # here",
        ArgumentError, ("after an iteration the carry has", "carry['x'] is one too many"),
    ),
    "a loop without return": (
        """
        def body(i, x):
            x = x + i
        weft.jit(lambda x: weft.fori_loop(0, 3, body, x))(1.0)  # here
        """,
        ArgumentError, ("the structure None, not *", "without return returns None"),
    ),
    "a scan that returns its carry": (
        "weft.jit(lambda x: weft.scan(lambda c, x: c + x, 0.0, x))(VECTOR)  # here",
        ArgumentError, ("must return a pair of the next carry and a result",),
    ),
    "scan's arguments in another order": (
        "weft.jit(lambda x: weft.scan(0.0, x, lambda c, x: (c, x)))(VECTOR)  # here",
        ArgumentError, ("0.0 is not a function", "scan(function, init, xs)"),
    ),
    "a loop over two values": (
        "weft.jit(lambda x: weft.while_loop(lambda i, x: i < 3, lambda i, x: (i, x), (0, x)))"
        "(1.0)  # here",
        ArgumentError, ("called as <lambda>(carry)", "missing a required argument: 'x'"),
    ),
    "the gradient of while": (
        "weft.grad(lambda x: weft.while_loop(lambda y: y < 5, lambda y: y * 2, x))(1.0)  # here",
        GradientError, ("has no gradient", "scan or fori_loop"),
    ),
    "an argument that a loop writes": (
        """
        @weft.jit
        def squares(x):
            def body(i, carry):
                x[0] = i * i  # here
                return carry + x[0]
            return weft.fori_loop(0, 3, body, 0.0), x
        squares(VECTOR)
        """,
        ArgumentError, ("the body writes x", "which is not its own", "carry it in a loop"),
    ),
    "an argument that a branch writes": (
        """
        def clear(x):
            x[0] = 0  # here
        @weft.jit
        def positive(x):
            weft.cond(x[0] < 0, lambda: clear(x), lambda: None)
            return x
        positive(VECTOR)
        """,
        ArgumentError, ("the body writes x", "return the new value"),
    ),
    # Results and arguments
    "a result that is text": (
        "weft.jit(lambda x: {'loss': x.sum(), 'name': 'mse'})(VECTOR)  # here",
        ArgumentError, ("result['name'] is 'mse'", "return tensors and numbers"),
    ),
    "a generator": (
        """
        @weft.jit
        def rows(x):
            for row in x:
                yield row
        rows(MATRIX)  # here
        """,
        ArgumentError, ("generator is not a part of trees", "make a tuple, list or dict"),
    ),
    "a set": ("weft.jit(lambda x: sum(x))({1.0, 2.0})  # here", ArgumentError,
              ("argument x is {1.0, 2.0}", "set is not a part of trees")),
    "text as an argument": (
        "weft.jit(lambda x, mode: x)(VECTOR, mode='train')  # here",
        ArgumentError, ("argument mode is 'train'", "static_argnames=('mode',)"),
    ),
    "text for grad": (
        "weft.grad(lambda x, mode: x.sum())(VECTOR, 'train')  # here",
        ArgumentError, ("argument mode is 'train'", "bring it by a lambda"),
    ),
    "an array of objects": (
        "weft.jit(lambda x: x)(np.array([[1.0], [2.0, 3.0]], dtype=object))  # here",
        ArgumentError, ("argument x is an array of object",),
    ),
    "a table with text": (
        """
        class Series:
            def __array__(self, dtype=None, copy=None):
                return np.array(["a", "b"])
        weft.jit(lambda batch: batch["x"])({"x": Series()})  # here
        """,
        ArgumentError, ("argument batch['x'] is an array of <U1",),
    ),
    "a method": (
        """
        class Model:
            @weft.jit
            def __call__(self, x):
                return x
        Model()(VECTOR)  # here
        """,
        ArgumentError, ("argument self is", "static_argnames=('self',)"),
    ),
    "a static list": (
        "weft.jit(lambda x, shape: x.reshape(shape), static_argnames='shape')"
        "(VECTOR, [3, 1])  # here",
        ArgumentError, ("static argument shape must be hashable", "a tuple for a list"),
    ),
    "a static array": (
        "weft.jit(lambda x, y: x, static_argnums=1)(VECTOR, VECTOR)  # here",
        ArgumentError, ("static argument y", "an array is traced"),
    ),
    "a misspelt option of jit": (
        "weft.jit(lambda x, n: x, static_argname='n')  # here",
        ArgumentError, ("no static_argname=", "mean 'static_argnames'"),
    ),
    "donated and static": (
        "weft.jit(lambda x, n: x, static_argnums=1, donate_argnums=1)  # here",
        ArgumentError, ("n is static", "no memory to donate"),
    ),
    "jit of a result": ("weft.jit(np.sum(VECTOR))  # here", ArgumentError, ("takes a function",)),
    "in_axes of other keys": (
        "weft.vmap(lambda p: p['w'], in_axes=({'b': 0},))({'w': VECTOR})  # here",
        ArgumentError, ("in_axes has {'b': 0} for {'w': *}",),
    ),
    "in_axes for one of two": (
        "weft.vmap(lambda x, y: x, in_axes=(0,))(VECTOR, VECTOR)  # here",
        ArgumentError, ("in_axes has (0,) for (*, *)", "an integer or None for each part"),
    ),
    "batches of other sizes": (
        "weft.vmap(lambda p, y: y)({'w': VECTOR}, np.ones(4))  # here",
        AxesError, ("args[1] has 4 examples", "args[0]['w'] has 3"),
    ),
    "a number beside a batch": (
        "weft.vmap(lambda x, y: x * y)(VECTOR, 2.0)  # here",
        AxesError, ("args[1] has Axes()", "in_axes= is None for what all share"),
    ),
    "out_axes of a batch": (
        "weft.vmap(lambda x: x, out_axes=None)(VECTOR)  # here",
        ArgumentError, ("depends on a batched argument", "give 0"),
    ),
    # Gradients
    "grad of integers": ("weft.grad(lambda x: x**2)(3)  # here", GradientError,
                         ("args[0] is int64", "only floats have derivatives")),
    "grad of a vector": ("weft.grad(lambda x: x**2)(VECTOR)  # here", GradientError,
                         ("returns float32 Axes(3)", "sum it")),
    "grad of a pair": ("weft.value_and_grad(lambda x: (x.sum(), x))(VECTOR)  # here", GradientError,
                       ("returns (*, *)", "has_aux=True")),
    "has_aux without a pair": (
        "weft.grad(lambda x: x.sum(), has_aux=True)(VECTOR)  # here",
        ArgumentError, ("has_aux=True", "returns a pair"),
    ),
    "argnums out of range": (
        "weft.grad(lambda x: x.sum(), argnums=1)(VECTOR)  # here",
        ArgumentError, ("argnums=1", "1 positional arguments"),
    ),
    "grad by keyword": ("weft.grad(lambda x: x.sum())(x=VECTOR)  # here", ArgumentError,
                        ("0 positional arguments", "by position")),
    "grad of a value": ("weft.grad((VECTOR**2).sum())  # here", ArgumentError,
                        ("grad takes a function, as in grad(f)(x)",)),
    "grad with the arguments": (
        "weft.grad(lambda x: x.sum(), VECTOR)  # here",
        ArgumentError, ("argnums= counts arguments", "the function that it returns"),
    ),
    "numbers for jvp": ("weft.jvp(lambda x: x * 2, 3.0, 1.0)  # here", ArgumentError,
                        ("takes tuples, as in jvp(f, (x,), (tangent,))",)),
    "more tangents": ("weft.jvp(lambda x: x * 2, (3.0,), (1.0, 2.0))  # here", ArgumentError,
                      ("tree of the tangents", "tangents[1] is one too many")),
    "vjp of integers": ("weft.vjp(lambda x: x * 2, 3)  # here", GradientError,
                        ("vjp of <lambda>: args[0] is int64",)),
    # Random numbers
    "a seed in the place of a key": (
        "weft.jit(lambda x: x + weft.random.normal(0, (3,)))(VECTOR)  # here",
        ArgumentError, ("takes a key, not 0", "weft.random.key(0)"),
    ),
    "a shape in the place of a key": (
        "weft.jit(lambda x: x + weft.random.normal((3,)))(VECTOR)  # here",
        ArgumentError, ("takes a key", "weft.random.key(0)"),
    ),
    "all keys at once": (
        """
        keys = weft.random.split(weft.random.key(0), 3)
        weft.jit(lambda keys: weft.random.normal(keys, (3,)))(keys)  # here
        """,
        ArgumentError, ("takes a key", "keys[0]"),
    ),
    "random numbers without a key": (
        "weft.jit(lambda x: weft.dropout(x, 0.5))(VECTOR)  # here",
        ArgumentError, ("draws random numbers", "take a key as an argument"),
    ),
    "a seed of JAX": ("weft.random.PRNGKey(0)  # here", AttributeError, ("weft.random.key(0)",)),
    "size=": ("weft.random.normal(weft.random.key(0), size=(3,))  # here", TypeError,
              ("normal has no size=", "mean 'shape'")),
    # Optimizers and layers
    "gradients of other parameters": (
        """
        optimizer, params = weft.optim.adam(0.1), {"w": VECTOR, "b": VECTOR}
        optimizer.update({"w": VECTOR}, optimizer.init(params), params)  # here
        """,
        ArgumentError, ("tree of gradients", "gradients['b'] is missing"),
    ),
    "the state in the wrong place": (
        """
        optimizer, params = weft.optim.adam(0.1), {"w": VECTOR}
        optimizer.update(params, params, optimizer.init(params))  # here
        """,
        ArgumentError, ("the state must be a dict of steps", "update(gradients, state, params)"),
    ),
    "optimizer.step": ("weft.optim.sgd(0.1).step()  # here", AttributeError,
                       ("optimizer.update(gradients, state, params)",)),
    "zero_grad": ("weft.optim.sgd(0.1).zero_grad()  # here", AttributeError,
                  ("nothing adds them up",)),
    "lr of a tree's optimizer": ("weft.optim.adam(lr=0.1)  # here", TypeError,
                                 ("mean 'learning_rate'", "It has learning_rate, beta1")),
    "another spelling of Adam": ("weft.optim.Adam(0.1)  # here", AttributeError, ("mean 'adam'",)),
    "other features": (
        """
        layer = weft.nn.Dense(4)
        params = layer.init(weft.random.key(0), (3,))
        weft.jit(layer)(params, np.ones((2, 5), np.float32))  # here
        """,
        AxesError, ("needs weight of shape (4, 5), but it has (4, 3)",),
    ),
    "inputs and outputs of a layer": (
        "weft.nn.Dense(3, 4)  # here", ArgumentError, ("activation must be a function, not 4",),
    ),
    "Linear": ("weft.nn.Linear(3, 4)  # here", AttributeError, ("weft.nn.Dense(features_out)",)),
    "a layer without parameters": ("weft.nn.Dense(4)(VECTOR)  # here", TypeError,
                                   ("parameters first: layer(params, x)",)),
    "a misspelt parameter": (
        "weft.jit(weft.nn.Dense(4))({'weigth': MATRIX, 'bias': VECTOR}, VECTOR)  # here",
        ArgumentError, ("weigth in the place of weight",),
    ),
    "parameters that are missing": (
        """
        model = weft.nn.Sequential(weft.nn.Dense(4), weft.relu, weft.nn.Dense(2))
        params = model.init(weft.random.key(0), (3,))
        del params["2"]
        weft.jit(model)(params, VECTOR)  # here
        """,
        ArgumentError, ("its parameters are weight, bias, not none in params['2']",),
    ),
    "a seed for init": ("weft.nn.Dense(4).init(0, (3,))  # here", ArgumentError,
                        ("takes a key, not 0", "weft.random.key(0)")),
    "an input for init": ("weft.nn.Dense(4).init(weft.random.key(0), MATRIX)  # here", AxesError,
                          ("init(key, x.shape)",)),
    "dropout without a key": (
        "weft.jit(lambda x: weft.nn.Dropout(0.5)({}, x, train=True))(VECTOR)  # here",
        ArgumentError, ("in training it needs key=",),
    ),
    "layer.eval": ("weft.nn.Dropout().eval()  # here", AttributeError, ("train=True",)),
    "layer.state_dict": ("weft.nn.Dense(4).state_dict()  # here", AttributeError,
                         ("layer.init(key, shape)",)),
    "a list of layers": (
        "weft.nn.Sequential([weft.nn.Dense(4), weft.relu])  # here",
        ArgumentError, ("member 0 must be a layer", "Sequential(*layers)"),
    ),
    # Habits
    "backward": ("weft.jit(lambda x: x.sum().backward())(VECTOR)  # here", AttributeError,
                 ("weft.grad(f)",)),
    "item": ("weft.jit(lambda x: x.sum().item())(VECTOR)  # here", AttributeError,
             ("let the function return it",)),
    "numpy": ("weft.jit(lambda x: x.numpy())(VECTOR)  # here", AttributeError,
              ("let the function return it",)),
    "detach": ("weft.jit(lambda x: x.detach())(VECTOR)  # here", AttributeError,
               ("weft.stop_gradient(x)",)),
    "cpu": ("weft.jit(lambda x: x.cpu())(VECTOR)  # here", AttributeError, ("jit(f, backend=",)),
    "to": ("weft.jit(lambda x: x.to('cuda'))(VECTOR)  # here", AttributeError,
           ("weft.jit(f, backend='cupy')", "x.astype(dtype)")),
    "add_": ("weft.jit(lambda x: x.add_(1))(VECTOR)  # here", AttributeError,
             ("an op never changes", "mean 'add'")),
    "size as a method": ("weft.jit(lambda x: x.reshape(x.size(0), -1))(MATRIX)  # here", TypeError,
                         ("x.size is the number of elements", "x.shape")),
    "shape as a method": ("weft.jit(lambda x: x.shape())(MATRIX)  # here", TypeError,
                          ("x.shape is a tuple",)),
    "view": ("weft.jit(lambda x: x.view(3, 2))(MATRIX)  # here", TypeError, ("use x.reshape",)),
    "dim= of a method": ("weft.jit(lambda x: x.sum(dim=1))(MATRIX)  # here", TypeError,
                         ("sum has no dim=", "mean 'axis'")),
    "keepdim= of a method": (
        "weft.jit(lambda x: (x * 2).mean(1, keepdim=True))(MATRIX)  # here",
        TypeError, ("mean has no keepdim=", "mean 'keepdims'"),
    ),
    "no_grad": ("with weft.no_grad(): pass  # here", AttributeError, ("weft.grad(f)",)),
    "tree_map": ("weft.tree_map(np.sin, {})  # here", AttributeError, ("optree.tree_map",)),
    "Module": ("class Net(weft.nn.Module): pass  # here", AttributeError, ("weft.nn.Layer",)),
}  # fmt: skip


def run(program: str, folder: Path) -> dict[str, Any]:
    """Run a program as a file of its own; return its names."""
    path = folder / "newcomer.py"
    path.write_text(dedent(program))
    names = {"np": np, "weft": weft, "VECTOR": VECTOR, "MATRIX": MATRIX}
    with weft.backend("numpy"):
        exec(compile(dedent(program), str(path), "exec"), names)
    return names


@pytest.mark.parametrize(("program", "kind", "pieces"), ERRORS.values(), ids=ERRORS)
def test_the_error_names_the_line_and_the_way(
    program: str, kind: type[Exception], pieces: tuple[str, ...], tmp_path: Path
):
    with pytest.raises(kind) as caught:
        run(program, tmp_path)
    stream = io.StringIO()
    with contextlib.redirect_stderr(stream):
        sys.excepthook(caught.type, caught.value, caught.tb)
    text = stream.getvalue()
    (number,) = (
        number
        for number, line in enumerate(dedent(program).splitlines(), 1)
        if line.endswith("# here")
    )
    where = str(caught.value) if isinstance(caught.value, weft.WeftError) else text
    assert f'newcomer.py", line {number}' in where
    assert [piece for piece in pieces if piece not in text] == []
    assert not is_tracing()
    assert not scope.current.get().recorders


class Failing:
    """A function that raises in the midst of its trace, in loops and branches too, while it may."""

    def __init__(self, error: BaseException) -> None:
        self.error: BaseException | None = error
        self.traces = 0

    def __call__(self, x: Any) -> Any:
        self.traces += 1
        y = weft.vmap(lambda row: row * 2)(x)
        return weft.fori_loop(0, 2, lambda i, c: weft.cond(i > 0, self.inner, lambda c: c, c), y)

    def inner(self, carry: Any) -> Any:
        if self.error is not None:
            raise self.error
        return carry + 1


@pytest.mark.parametrize("error", [KeyboardInterrupt(), ValueError("mine"), RecursionError()])
@pytest.mark.parametrize("transform", [weft.jit, weft.vmap, lambda f: weft.vmap(weft.jit(f))])
def test_a_function_is_called_rightly_after_an_error(error: BaseException, transform: Any):
    failing = Failing(error)
    with weft.backend("numpy"):
        function = transform(failing)
        rows = np.ones((2, 3), np.float32)
        for _ in range(2):
            with pytest.raises((type(error), ArgumentError)):
                function(rows)
            assert not is_tracing()
            assert not scope.current.get().recorders
        failing.error = None
        assert function(rows).tolist() == [[3, 3, 3], [3, 3, 3]]
        assert weft.jit(lambda x: x + 1)(1.0) == 2


def test_an_error_in_the_compiler_leaves_nothing(monkeypatch: pytest.MonkeyPatch):
    from weft.runtime.compiler import Compiler

    def failing(*_: object, **__: object) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setenv("WEFT_CACHE", "0")
    with weft.backend("numpy"):
        function = weft.jit(lambda x: x * 3)
        with monkeypatch.context() as patch:
            patch.setattr(Compiler, "run_passes", failing)
            with pytest.raises(KeyboardInterrupt):
                function(2.0)
        assert function(2.0) == 6


def test_hints_are_for_functions_of_weft():
    class Frame:
        @property
        def sum(self) -> Any:
            raise OSError("of the user's own")

    def train(rate: float) -> float:
        return rate

    frame = Frame()
    with pytest.raises(TypeError) as caught:
        train(lr=0.1)  # type: ignore[call-arg]
    assert keyword_hints.hint(caught.value) == ""
    with pytest.raises(TypeError) as caught:
        (lambda frame: weft.sum(VECTOR, dim=0) or frame.sum())(frame)  # type: ignore[call-arg]
    assert "mean 'axis'" in keyword_hints.hint(caught.value)
    assert keyword_hints.hint(TypeError("'int' object is not callable")) == ""


def test_threads_trace_beside_each_other():
    inside, leave = threading.Event(), threading.Event()

    def waiting(x: Any) -> Any:
        inside.set()
        assert leave.wait(60)
        return x * 2

    found: list[Any] = []
    with weft.backend("numpy"):
        function = weft.jit(waiting)
        function.transformer  # noqa: B018  # the default backend is that of this thread
        thread = threading.Thread(target=lambda: found.append(function(VECTOR)))
        thread.start()
        assert inside.wait(60)
        assert not is_tracing()
        with pytest.raises(DTypeError, match="no truth value"):
            weft.jit(lambda x: 1 if x else 2)(1.0)
        assert weft.jit(lambda x: x + 1)(1.0) == 2
        leave.set()
        thread.join()
    assert found[0].tolist() == [0, 2, 4]


@pytest.fixture
def few_traces(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Let there be a warning at the fifth trace; return a list for the traces."""
    monkeypatch.setattr(retraces, "LIMIT", 5)
    monkeypatch.setattr(retraces, "_repeated", {})
    return []


def rows(count: int) -> dict[str, Any]:
    return {"a": np.ones(count, np.float32), "b": np.zeros(count, np.float32)}


@pytest.mark.parametrize(
    ("options", "calls"),
    {
        "numbers": ({}, [(rows(2), 0.1 * number) for number in range(8)]),
        "integers": ({}, [(rows(2), number) for number in range(8)]),
        "the order of keys": ({}, [(rows(2), 1.0), (dict(reversed(rows(2).items())), 1.0)]),
        "lengths that vary": (
            {"dynamic": {"x": "n"}}, [(rows(count), 1.0) for count in range(2, 10)]
        ),
    }.values(),
)  # fmt: skip
def test_what_changes_without_another_trace(
    few_traces: list[int], options: dict[str, Any], calls: list[tuple[Any, ...]]
):
    @weft.jit(backend="numpy", **options)
    def scaled(x: Any, factor: Any) -> Any:
        few_traces.append(1)
        return x["a"] * factor - x["b"]

    for args in calls:
        np.testing.assert_allclose(scaled(*args), args[0]["a"] * args[1], rtol=1e-6)
    assert len(few_traces) == 1


def test_unusual_trees_are_trees():
    with weft.backend("numpy"):
        assert weft.jit(lambda tree: tree[1] + tree["a"])({1: 1.0, "a": 2.0}) == 3
        ragged = weft.jit(lambda rows: [sum(row) for row in rows])([[1.0, 2.0], [3.0]])
        assert [float(each) for each in ragged] == [3, 3]
        assert weft.jit(lambda tree: {"x": tree, "none": None})(None) == {"x": None, "none": None}


@pytest.mark.parametrize(
    ("options", "calls", "pieces"),
    {
        "shapes": ({}, [(rows(count), 1.0) for count in range(1, 8)], ("shapes", "dynamic=")),
        "static numbers": (
            {"static_argnames": "factor"}, [(rows(2), float(number)) for number in range(7)],
            ("values of its static arguments", "let the numbers be traced"),
        ),
        "dtypes": (
            {}, [({**rows(2), "b": np.zeros(2, kind)}, 1.0)
                 for kind in ("int8", "int16", "int32", "uint8", "float64", "uint16")],
            ("other structures or dtypes",),
        ),
    }.values(),
)  # fmt: skip
def test_a_function_that_is_traced_again_and_again_warns(
    few_traces: list[int],
    options: dict[str, Any],
    calls: list[tuple[Any, ...]],
    pieces: tuple[str, ...],
):
    @weft.jit(backend="numpy", **options)
    def scaled(x: Any, factor: Any) -> Any:
        few_traces.append(1)
        return x["a"] * factor - x["b"]

    with pytest.warns(retraces.RetraceWarning) as caught:
        [scaled(*args) for args in calls]
    assert len(few_traces) == len(calls)
    (warning,) = caught
    assert warning.filename == __file__
    text = str(warning.message)
    assert [piece for piece in ("scaled has been", "5 times", *pieces) if piece not in text] == []


@pytest.mark.parametrize(
    "train",
    [
        lambda loss, w: weft.jit(loss, backend="numpy")(w),
        lambda loss, w: weft.grad(loss)(w),
        lambda loss, w: weft.vmap(loss)(w[None]),
    ],
)
def test_jit_in_a_loop_warns(few_traces: list[int], train: Any):
    def loss(w: Any) -> Any:
        few_traces.append(1)
        return (w * w).sum()

    with weft.backend("numpy"), pytest.warns(retraces.RetraceWarning) as caught:
        [train(loss, VECTOR) for _ in range(7)]
    (warning,) = caught
    assert len(few_traces) >= 5
    assert "loss has been traced" in str(warning.message)
    assert "call jit once, outside of the loop, and around grad" in str(warning.message)
