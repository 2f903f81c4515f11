"""Random bits as a function of a seed and a position, so that the backward pass computes dropout again.

A kernel mixes its rows and its columns once each; every combination of both then costs five integer instructions.
"""

import triton
import triton.language as tl


@triton.jit
def mix(word):
    """``randomness.mix`` of 32-bit words."""
    word = word ^ (word >> 16)
    word = word * 0x7FEB352D
    word = word ^ (word >> 15)
    word = word * 0x846CA68B
    return word ^ (word >> 16)


@triton.jit
def mix_columns(column):
    """The words of columns, for ``combine``."""
    return mix(column.to(tl.uint32) ^ 0x243F6A88)


@triton.jit
def combine(of_row, of_column):
    """32 random bits for each combination of a mixed row and a mixed column."""
    word = (of_row ^ of_column) * 0x7FEB352D
    return (word ^ (word >> 15)) * 0x2C1B3C6D
