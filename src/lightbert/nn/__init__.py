"""The parts: modules that take numbers and modules, never a config. Read encoder.py first."""
