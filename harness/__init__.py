"""Steelyard's harness: plan -> build -> check -> time -> report."""
