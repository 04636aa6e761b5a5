"""A LLaMA-2 style decoder, one compiled step a token: right, and without anything left to do."""

from __future__ import annotations

import gc
import tracemalloc

import numpy as np
import pytest
from hamkaas_decoder import Sizes, decode_step, plain_logits, step_inputs, weights
from hamkaas_models import mnist

import weft
from weft.kernels import FusedOp
from weft.plan.plan import STATE
from weft.plugins.entrypoints import DEFAULT_PIPELINE
from weft_hamkaas import HamKaasModel, HamKaasPlugin
from weft_hamkaas.nodes import SumNode

SIZES = Sizes()
WORDS = [(5 * position + 3) % SIZES.words for position in range(SIZES.positions)]


def test_decoding_equals_a_plain_transformer_over_32_positions(backend: str):
    values = weights(SIZES)
    model = HamKaasPlugin(backend).compile_model(decode_step(SIZES, values))
    transformer = model.computation.transformer
    buffers = list(transformer.device_buffers)
    expected = plain_logits(SIZES, values, WORDS)
    assert len(WORDS) == 32
    for position, word in enumerate(WORDS):
        found = model.evaluate(step_inputs(SIZES, values, word, position))
        np.testing.assert_allclose(found, expected[position], rtol=0, atol=1e-5)
    assert len(transformer.computations) == 1
    assert len(model.computation.programs) == 1
    assert list(transformer.device_buffers) == buffers


def test_both_caches_are_written_in_place_and_never_copied():
    model = HamKaasPlugin().compile_model(decode_step(SIZES, weights(SIZES)))
    plan = model.computation.plan
    plan.verify()
    cache = 4 * SIZES.layers * SIZES.positions * SIZES.units
    kinds = {buffer.kind for buffer in plan.buffers if buffer.nbytes == cache}
    assert kinds == {STATE}
    assert plan.arena_size == plan.peak_live < cache


LARGE = Sizes(units=256, layers=3, heads=4, hidden=512, words=1000, positions=64)
"""Large enough that any temporary of a tensor is more than what objects of Python take."""
OBJECTS = 16_384
"""The bytes that objects of Python may take in a call, on any backend, whatever the sizes.

They stand for arguments, views of them and results. Calls of NumPy take most, 4,500 bytes; those of
devices 2,000 where they share the host's memory, and 4,000 where arguments and results are copied,
into memory that is there before.
"""


def device_bytes(transformer: weft.Transformer):
    """Return the memory that is taken from a device, which Python does not see; 0 without one."""
    device = getattr(transformer, "device", None)
    return device.live_bytes if device else 0


def test_a_token_compiles_nothing_and_allocates_its_logits_only(backend: str):
    values = weights(LARGE)
    model = HamKaasPlugin(backend).compile_model(decode_step(LARGE, values))
    inputs = step_inputs(LARGE, values, 1, 0)
    first = model.evaluate(inputs)
    transformer, program = model.computation.transformer, model.computation.program
    storages = {id(tensor.storage) for tensor in transformer.state_tensors.values()}
    gc.collect()
    buffers, on_device = list(transformer.device_buffers), device_bytes(transformer)
    found = []
    tracemalloc.start()
    try:
        for _ in range(5):
            tracemalloc.reset_peak()
            before, _ = tracemalloc.get_traced_memory()
            logits = model.evaluate(inputs)
            found.append(tracemalloc.get_traced_memory()[1] - before - logits.nbytes)
            assert device_bytes(transformer) <= on_device, (
                "of this and of others that end meanwhile"
            )
    finally:
        tracemalloc.stop()
    assert min(found) < OBJECTS < 4 * LARGE.heads * LARGE.positions * LARGE.head
    assert (model.computation.program, len(transformer.computations)) == (program, 1)
    assert len(model.computation.programs) == 1
    assert {id(tensor.storage) for tensor in transformer.state_tensors.values()} == storages
    assert list(transformer.device_buffers) == buffers
    np.testing.assert_allclose(logits, first, rtol=0, atol=1e-5)


def unfused(node: SumNode):
    passes = [name for name in DEFAULT_PIPELINE if name != "fusion"]
    return HamKaasModel(node, weft.make_transformer("numpy", passes=passes))


def test_the_network_for_digits_becomes_two_kernels():
    before, after = (
        unfused(mnist()).fusion_statistics,
        HamKaasPlugin().compile_model(mnist()).fusion_statistics,
    )
    assert (before.steps, before.kernels) == (5, 0)
    assert (after.steps, after.kernels, after.fused) == (2, 2, 5)
    assert after.bytes_moved < 0.8 * before.bytes_moved


def test_a_decoder_becomes_fewer_kernels_and_each_layer_has_the_same_ones():
    keys = {}
    for layers in (2, 4):
        sizes = Sizes(layers=layers)
        node = decode_step(sizes, weights(sizes))
        model = HamKaasPlugin().compile_model(node)
        assert model.fusion_statistics.steps < 0.5 * unfused(node).fusion_statistics.steps
        kernels = [s.op.kernel for s in model.computation.plan.steps if isinstance(s.op, FusedOp)]
        keys[layers] = len(kernels), {kernel.key for kernel in kernels}
    assert keys[4][0] - keys[2][0] >= 10
    assert len(keys[4][1]) == len(keys[2][1])


@pytest.mark.parametrize("flag", [True, False])
def test_products_are_fused_with_what_follows_them_whether_asked_for_or_not(flag: bool):
    model = HamKaasPlugin().compile_model(mnist(), use_cudnn=flag)
    assert model.fusion_statistics.kernels == 2
