"""Tests of modules that import the packages of the extra `serve` are collected only where it is installed."""

from importlib.util import find_spec

collect_ignore = [] if find_spec("fastapi") else ["test_page.py", "test_page_script.py", "test_serving_page.py"]
