"""Which tests `make fast`, `make test` and `make test-all` run; docs/testing.md says why.

A test runs in every tier, unless a table here or one of the marks ``slow`` and ``long`` names it.
The fast tier runs one case of each test function.
"""

from __future__ import annotations

import argparse
import json
import os
import zlib
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from math import ceil
from pathlib import Path
from typing import Any

import pytest

from weft import plugins
from weft.plugins.entrypoints import OWN
from weft_pytest import is_left_out, named_by

TIERS = FAST, TEST, ALL = ("fast", "test", "all")
"""Each runs what the one before it does, and more."""

SLOW = frozenset({
    # Programs, installed packages, and what the command line prints: a process for each test.
    "test_consoles", "test_digits", "test_doctor", "test_gallery", "test_installed", "test_llama",
    "test_llama_decoding", "test_llama_files", "test_makefile", "test_needs", "test_paths",
    "test_popxl_mnist", "test_pytest_plugin", "test_report", "test_site", "test_together",
    "test_tutorial", "test_tutorials", "test_walkthrough", "test_weft_command",
    "test_surroundings", "test_without_posix",
    # Kernels that compilers of C have to translate.
    "test_array_api", "test_cublas", "test_cuda_devices", "test_cuda_graphs",
    "test_cuda_kit_rows", "test_cuda_sources", "test_emulated_kit", "test_emulator",
    "test_epilogues", "test_generator_coverage", "test_work_groups", "test_kernel_groups",
    "test_larger_shapes", "test_long_sums", "test_loop_nests_and_reductions", "test_variance",
    "test_mutants", "test_matmul_kernels", "test_prologues", "test_second_driver", "test_spatial",
    "test_ops_lines", "test_ops_moving", "test_vectorized_access",
    # Programs under mpiexec.
    "test_agreement", "test_data_parallel", "test_kills", "test_mpi", "test_mpi_checkpoints",
    "test_nccl", "test_popxl_replicas", "test_sharding", "test_training", "test_values_of_ranks",
    # Pools of processes, processes that are killed, and the whole table saved or exported.
    "test_artifacts", "test_checkpoints", "test_export_source", "test_map",
    "test_native_cache", "test_native_libraries", "test_native_processes", "test_onnx_mutants",
    # OpenCL's drivers, threads, signals, and forked processes.
    "test_forks", "test_interleavings", "test_interrupts", "test_loops_and_choices",
    "test_mapped_arrays", "test_opencl_calls", "test_opencl_devices", "test_opencl_mappings",
    "test_opencl_rounds", "test_opencl_verdicts", "test_pool", "test_threads",
    # Statistics of many draws, deep graphs, and whole models.
    "test_distributions", "test_initial_weights", "test_models", "test_nesting",
    "test_measure", "test_plan_models", "test_pooling", "test_random_graphs", "test_schedule",
    "test_onnx_suite",
    "test_rematerialization",
})  # fmt: skip
"""Modules that the fast tier does not even import."""

DEVICES = frozenset({"opencl", "cupy", "native"})
"""Backends that the fast tier does not compile for."""

LONG = frozenset({
    # Each is a process, or several, that does what shorter tests do one by one.
    "test_a_command_shows_paths_and_names[doctor]",
    "test_a_later_process_finds_what_modules_define_until_they_change",
    "test_all_that_are_usable_are_tested_and_what_is_broken_fails",
    "test_doctor_shows_states_versions_and_variables",
    "test_eight_processes_compile_the_same_and_other_graphs_at_once",
    "test_packages_are_listed_and_none_is_imported",
    "test_the_backend_passes_the_quick_part_of_the_kit",
    "test_the_doctor_fails_if_the_backend_in_use_is_bad",
    "test_the_doctor_finds_the_same_backends_usable",
    "test_the_doctor_says_what_is_wrong_and_what_to_do",
    "test_the_package_passes_its_own_tests",
    "test_two_that_clash_are_refused_and_both_named",
    "test_fewer_rows_compile_in_other_dtypes",
    "test_any_reduction_in_any_layout",
    "test_a_short_run_learns_on_each_backend[opencl]",
    "test_it_trains_and_writes_and_tells[opencl]",
    "test_prompts_are_compiled_for_few_lengths[grouped-opencl]",
    "test_a_slow_one_is_imported_only_for_its_own_users",
    "test_passes_are_listed_with_what_they_do",
    "test_its_pass_takes_part_as_long_as_it_is_enabled",
    "test_a_probe_that_never_comes_back_is_given_up",
    "test_what_is_wrong_is_pinned_to_its_case",
    "test_a_run_writes_both_forms_of_its_report",
    "test_the_ini_file_and_marks_choose",
    "test_shaping_keeps_values_and_ranks",
    "test_two_hundred_transformers_leave_nothing",
    # Large graphs and arrays.
    "test_all_orders_are_equally_likely[opencl]",
    "test_closed_graphs_leave_no_mappings",
    "test_libraries_come_and_go_while_others_run",
    "test_c38_a_chain_of_20000_ops[opencl]",
    "test_plugin_model_and_node_are_let_go_in_any_order",
    "test_c38_a_chain_of_100000_ops_is_captured_differentiated_and_printed",
    "test_the_largest_of_nearly_as_many_as_31_bits_count_is_found",
    # Half a minute of a compiler of C, for programs that are run on NumPy's backend too.
    "test_compiled_program_gives_what_the_reference_gives[opencl]",
    "test_every_backend_gives_what_the_definitions_give[native-1]",
    "test_compiled_program_gives_what_the_reference_gives[array-api-strict]",
    # A thousand random windows in each backend, of which each tier runs a few.
    "test_many_windows_give_what_their_definitions_say",
    # Operands of other shapes and views, whose gradients the rows of the table also check.
    "test_gradient_of_other_operands_is_a_central_difference",
})  # fmt: skip
"""Test functions, with their parameters where those matter, that only the last tier runs."""

SHARES = {
    # Kernels in C: dtypes times shapes times layouts, each compiled.
    "test_cuda_kit_rows": 3, "test_cuda_sources": 16, "test_epilogues": 20,
    "test_kernel_groups": 2, "test_larger_shapes": 4, "test_loop_nests_and_reductions": 8,
    "test_matmul_kernels": 6, "test_opencl_rounds": 4, "test_ops_lines": 12, "test_ops_moving": 6,
    "test_results_are_the_same_with_counters_of_64_bits": 24,
    "test_integers_are_rounded_once": 6, "test_vectorized_access": 6, "test_work_groups": 16,
    "test_prologues": 6, "test_variance": 5,
    "test_long_sums": 6, "test_functions_name_the_helpers_that_they_call": 5,
    "test_scatter_without_atomics_of_64_bits": 8,
    "test_arrays_of_any_shape_and_dtype_pass_the_edge": 6,
    "test_rows_in_a_rarer_dtype": 40, "test_interrupts": 6,
    "test_second_derivative_is_a_central_difference": 3, "test_layout": 2, "test_spatial": 16,
    "test_popxl_arguments": 2, "test_onnx": 10, "test_onnx_trees": 3,
    "test_each_value_is_computed_as_its_definition_says": 3,
    "test_a_node_gives_what_its_definition_gives": 3,
    "test_a_node_gives_what_onnxruntime_gives": 3,
    # The same on each backend, or once for each of many functions.
    "test_a_seed_gives_the_same_numbers_on_every_backend_and_compiled_again": 3,
    "test_all_orders_are_equally_likely": 3, "test_an_error_anywhere_leaves_states_as_they_were": 6,
    "test_an_exception_in_the_middle_of_initialization": 6, "test_c38_a_chain_of_20000_ops": 3,
    "test_deeply_nested_graphs_are_looked_at": 4, "test_distributions": 4,
    "test_every_op_can_be_kept": 6, "test_function_ends": 6, "test_initial_weights": 4,
    "test_slots_of_narrow_variables_are_wide": 8, "test_two_ops_may_take_one_result": 4,
    "test_a_call_on_large_arrays_allocates_its_result_only": 3,
    # Whole programs, and processes.
    "test_a_program_runs": 6,
    "test_a_model_that_is_not_compiled_leaves_nothing_behind": 9,
    "test_a_prompt_at_once_is_as_good_as_token_by_token": 3, "test_digits": 3,
    "test_doctor_fails_if_the_backend_in_use_is_not_usable": 4,
    "test_it_trains_and_writes_and_tells": 3, "test_processes_compute_load_and_map": 3,
    "test_what_cannot_be_trained_ends_all_ranks_with_a_sentence": 4,
    "test_only_chosen_rows_of_one_dtype_are_together": 3,
    "test_ten_megabytes_of_anything_are_refused_quickly": 6,
    "test_the_doctor_survives_and_says_whose_fault_it_is": 9,
}  # fmt: skip
"""By test function or by module, with its folder where another has the same name: one in so many
cases is enough before the last tier."""

SPARSE = {"native": 4}
"""Backends whose kernels another one runs too, here OpenCL: the second tier runs one in so many of
their cases, and all of their own tests."""

TABLE_TEST = "test_row_gives_what_the_reference_gives"
BATCHED = f"test_ops.py::{TABLE_TEST}"
"""The test whose first row computes those beside it, too, and shows their time."""
TABLE_SHARES = {"numpy": 5}
"""By backend: of the cases of a function in the op table, the second tier runs one in so many. On
another backend it runs one, and on all `DEVICES` together one."""


DURATIONS = Path(__file__).with_name("durations.json")
"""Seconds of the processor: of each case that takes `LEAST` of them or more, by its name, and of
the mean case of each function whose cases take `MOST_TOGETHER` or more, by the function."""
LEAST = 0.2
MOST = {FAST: 0.2, TEST: 0.4}
"""The seconds from which a case is in a later tier; but the second has a case of each file."""
MOST_TOGETHER = 2.0
"""The seconds of the cases of a function in the second tier; the op table has its own rule."""

SECONDS = pytest.StashKey[float]()
"""The time of the processor when a test began."""

LOST = pytest.StashKey[list[str]]()
"""For each test that was left out because its backend has no device, that backend."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options that choose a part of the tests."""
    group = parser.getgroup("tiers", "tiers of weft's own tests")
    group.addoption("--tier", choices=TIERS, default=ALL, help="up to which tier tests are run")
    group.addoption(
        "--above", choices=TIERS[:-1], default=None, help="leave out what this tier runs"
    )
    group.addoption(
        "--record-durations", action="store_true", help=f"write {DURATIONS.name} for what is run"
    )
    group.addoption(
        "--part",
        type=_part,
        metavar="K/N",
        default="0/1",
        help="of what is left, run part K of N, which is always the same",
    )


def _part(text: str) -> tuple[int, int]:
    """Return which part is run, and how many there are."""
    part, _, parts = text.partition("/")
    if not (part.isdecimal() and parts.isdecimal() and int(part) < int(parts)):
        raise argparse.ArgumentTypeError(f"{text} is not K/N, for a part from 0 to N - 1")
    return int(part), int(parts)


def pytest_configure(config: pytest.Config) -> None:
    """Register the marks."""
    config.addinivalue_line("markers", "slow: not in the fast tier (make fast)")
    config.addinivalue_line("markers", "long: in the last tier alone (make test-all)")
    if config.getoption("--record-durations") and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Recorder())


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> None:
    """Note when a test begins."""
    item.stash[SECONDS] = sum(os.times()[:4])


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item) -> None:
    """Send the time of a test, and of the processes that it waited for, along with its report."""
    item.user_properties.append(("seconds", sum(os.times()[:4]) - item.stash[SECONDS]))


class Recorder:
    """Writes the file of durations: new ones of the tests that are run."""

    def __init__(self) -> None:
        self.found = durations()
        self.cases: dict[str, list[float]] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Take the time of a test, unless it is that of others."""
        if report.when != "teardown" or BATCHED in report.nodeid:
            return
        seconds = float(dict(report.user_properties).get("seconds", 0.0))
        self.cases.setdefault(report.nodeid.partition("[")[0], []).append(seconds)
        self.found.pop(report.nodeid, None)
        if seconds >= LEAST:
            self.found[report.nodeid] = round(seconds, 1)

    def pytest_sessionfinish(self) -> None:
        """Write the file."""
        for function, cases in self.cases.items():
            if sum(cases) >= MOST_TOGETHER and len(cases) > 1:
                self.found[function] = round(sum(cases) / len(cases), 3)
        DURATIONS.write_text(json.dumps(dict(sorted(self.found.items())), indent=0) + "\n")


def durations() -> dict[str, float]:
    """Return the seconds in the file, by the names of tests."""
    found: dict[str, float] = json.loads(DURATIONS.read_text())
    return found


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not import what the fast tier leaves out whole."""
    return True if config.getoption("--tier") == FAST and collection_path.stem in SLOW else None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what is above the tier, what is in the lower one, and the other parts.

    So are tests of backends of other distributions, unless they are asked for.
    """
    tier, below = config.getoption("--tier"), config.getoption("--above")
    part, parts = config.getoption("--part")
    records = {record.name: record for record in plugins.records(plugins.BACKENDS)}
    asked = {str(_parameters(item).get("backend")) for item in items}.intersection(records)
    others = [name for name in asked if records[name].distribution not in (None, OWN)]
    foreign = [name for name in others if name not in named_by(config)]
    # A test of a backend without its device could only be skipped; `needs` counts these.
    lacking = [name for name in asked if name not in foreign and is_left_out(config, name)]
    usable, unusable = [], []
    for item in items:
        backend = _parameters(item).get("backend")
        if backend not in foreign:
            (unusable if backend in lacking else usable).append(item)
    left, lost = usable, unusable
    if tier != ALL:
        left, lost = members(usable, tier), members(unusable, tier)
    config.stash[LOST] = [str(_parameters(item)["backend"]) for item in lost]
    if below is not None:
        lower = set(members(usable, below))
        left = [item for item in left if item not in lower]
    left = [item for item in left if checksum(item) % parts == part]
    if len(left) < len(items):
        chosen = set(left)
        config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
        items[:] = left


def members(items: Sequence[pytest.Item], tier: str) -> list[pytest.Item]:
    """Return the tests of one of the tiers before the last."""
    marks = ("long",) if tier == TEST else ("long", "slow")
    left = [item for item in items if not any(map(item.get_closest_marker, marks))]
    left = [item for item in left if LONG.isdisjoint((item.name, _function(item)))]
    if tier == TEST:
        left = _shares(left, _group, _one_in)
        left = [item for item in left if _function(item) == TABLE_TEST or not _is_sparse(item)]
    else:
        left = [item for item in left if _module(item) not in SLOW]
        left = [item for item in left if _parameters(item).get("backend") not in DEVICES]
        left = _shares(left, _test, lambda item: 0)
    seconds = durations()
    quick = [item for item in left if seconds.get(item.nodeid, 0.0) < MOST[tier]]
    if tier == TEST:
        # Of each file the last one stays in the dictionary, which is the quickest.
        quickest = {
            _path(item): item
            for item in sorted(left, key=lambda item: -seconds.get(item.nodeid, 0.0))
        }
        tried = {*map(_path, quick)}
        quick += [item for path, item in quickest.items() if path not in tried]

    def one_in(item: pytest.Item) -> float:
        """Return of how many cases of a function one is taken, so that all take no longer."""
        return max(counts[_test(item)] * seconds.get(_test(item), 0.0) / MOST_TOGETHER, 1.0)

    counts = Counter(map(_test, quick))
    return _shares(quick, _test, one_in)


def _is_sparse(item: pytest.Item) -> bool:
    """Whether a test is left out because another backend runs the same kernels."""
    backend = _parameters(item).get("backend")
    return checksum(item) % SPARSE.get(str(backend), 1) != 0


def _shares(
    items: Sequence[pytest.Item],
    group_of: Callable[[pytest.Item], Hashable],
    one_in: Callable[[pytest.Item], float],
) -> list[pytest.Item]:
    """Return of each group one test in so many, and at least one; of 0, just one."""
    groups: dict[Hashable, list[pytest.Item]] = {}
    for item in items:
        groups.setdefault(group_of(item), []).append(item)
    chosen: set[pytest.Item] = set()
    for group in groups.values():
        number = one_in(group[0])
        count = ceil(len(group) / number) if number else 1
        chosen.update(sorted(group, key=checksum)[:count])
    return [item for item in items if item in chosen]


def _test(item: pytest.Item) -> str:
    """Return the name of a test function, and of its file."""
    return item.nodeid.partition("[")[0]


def _path(item: pytest.Item) -> str:
    """Return the name of the file of a test."""
    return item.nodeid.partition("::")[0]


def _group(item: pytest.Item) -> Hashable:
    if _function(item) == TABLE_TEST:
        parameters = _parameters(item)
        backend = "device" if parameters["backend"] in DEVICES else parameters["backend"]
        return TABLE_TEST, parameters["row"].function, backend
    return _test(item)


def _one_in(item: pytest.Item) -> int:
    """Return of how many tests that are alike one is taken; 0 for one in all."""
    if _function(item) == TABLE_TEST:
        return TABLE_SHARES.get(_parameters(item)["backend"], 0)
    names = _function(item), f"{item.path.parent.name}/{_module(item)}", _module(item)
    return next((SHARES[name] for name in names if name in SHARES), 1)


def checksum(item: pytest.Item) -> int:
    """Return a number that depends on the name of a test alone."""
    return zlib.crc32(item.nodeid.encode())


def _function(item: pytest.Item) -> str:
    return str(getattr(item, "originalname", None) or item.name)


def _module(item: pytest.Item) -> str:
    return item.path.stem


def _parameters(item: pytest.Item) -> dict[str, Any]:
    return getattr(getattr(item, "callspec", None), "params", {})
