"""Measuring: operations counted and, later, time taken."""
