"""Evaluate the CUDA solutions: `python run_eval.py [op ...]`; `--help` tells the rest."""

from harness.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
