"""Verdict: does not load. Ends its process with code 0 when it is imported."""

import sys

REFERENCE = "gelu"
print("PASS")
sys.exit(0)
