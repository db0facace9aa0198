"""The commands of run_eval.py, a function each; `harness.cli` gives them their words."""
