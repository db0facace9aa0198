"""Runs tests of test_layer_solutions.py on the CPU execution; prints a JSON line for each.

`install()` changes torch for good, so test_layer_on_cpu.py starts this file in its own process.
"""

import sys
from pathlib import Path

TESTS = Path(__file__).resolve().parent
sys.path[:0] = [str(TESTS.parent), str(TESTS)]


def main() -> None:
    from harness import simt

    simt.install()
    import test_layer_solutions as on_device
    from routing_on_cpu import outcome

    for op in on_device.OPS:
        for case in ("small", "odd", "empty"):
            outcome(on_device.test_case, op, case)
            if op in on_device.TRAINED:
                outcome(on_device.test_case_backward, op, case)
        outcome(on_device.test_five_runs_are_bit_equal, op)
        outcome(on_device.test_wrong_inputs_are_refused_in_words, op)
    for change in on_device.PRODUCTS:
        outcome(on_device.test_the_layer_uses_grouped_products_where_they_serve, change)
    outcome(on_device.test_the_layer_leaves_out_gradients_that_nobody_wants)


if __name__ == "__main__":
    main()
