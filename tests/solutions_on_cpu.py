"""Runs the tests of a GPU test file on the CPU execution; prints a JSON line for each.

    python tests/solutions_on_cpu.py test_routing_solutions

`install()` changes torch for good, so test_solutions_on_cpu.py starts this file in a process.
"""

import importlib
import json
import sys
import traceback
from pathlib import Path

TESTS = Path(__file__).resolve().parent
sys.path[:0] = [str(TESTS.parent), str(TESTS)]


def outcome(test, *arguments: str) -> None:
    try:
        test(*arguments)
        problem = ""
    except BaseException:
        problem = traceback.format_exc(limit=-3)
    print(json.dumps({"test": [test.__name__, *arguments], "problem": problem}), flush=True)


def every_op(on_device) -> None:
    for op in on_device.OPS:
        for case in ("small", "odd", "empty"):
            outcome(on_device.test_case, op, case)
            if op in on_device.TRAINED:
                outcome(on_device.test_case_backward, op, case)
        outcome(on_device.test_five_runs_are_bit_equal, op)


def routing(on_device) -> None:
    outcome(on_device.test_a_token_does_not_depend_on_the_others)
    outcome(on_device.test_wrong_inputs_are_refused_in_words)


def layer(on_device) -> None:
    for op in on_device.OPS:
        outcome(on_device.test_wrong_inputs_are_refused_in_words, op)
    for change in on_device.PRODUCTS:
        outcome(on_device.test_the_layer_uses_grouped_products_where_they_serve, change)
    outcome(on_device.test_the_layer_leaves_out_gradients_that_nobody_wants)


FURTHER = {"test_routing_solutions": routing, "test_layer_solutions": layer}


def main(name: str) -> None:
    from harness import simt

    simt.install()
    on_device = importlib.import_module(name)
    every_op(on_device)
    FURTHER[name](on_device)


if __name__ == "__main__":
    main(*sys.argv[1:])
