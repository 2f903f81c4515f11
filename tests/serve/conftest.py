"""Tests of the server are collected only where the packages of the extra `serve` are installed."""

from importlib.util import find_spec

collect_ignore_glob = [] if find_spec("fastapi") and find_spec("prometheus_client") else ["test_*.py"]
