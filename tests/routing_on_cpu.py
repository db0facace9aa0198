"""Runs tests of test_routing_solutions.py on the CPU execution; prints a JSON line for each.

`install()` changes torch for good, so test_routing_on_cpu.py starts this file in its own process.
"""

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


def main() -> None:
    from harness import simt

    simt.install()
    import test_routing_solutions as on_device

    for op in on_device.OPS:
        for case in ("small", "odd", "empty"):
            outcome(on_device.test_case, op, case)
            if op in on_device.TRAINED:
                outcome(on_device.test_case_backward, op, case)
        outcome(on_device.test_five_runs_are_bit_equal, op)
    outcome(on_device.test_a_token_does_not_depend_on_the_others)
    outcome(on_device.test_wrong_inputs_are_refused_in_words)


if __name__ == "__main__":
    main()
