"""Preflight: looks at a launch command before any model is loaded."""
