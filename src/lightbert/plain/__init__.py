"""Each paper's whole forward as pure functions on one page: the oracle that the composed models are tested against.

The pages are written straight from the equations in the most obvious PyTorch. They know nothing of ``ops`` and ``nn``,
drop nothing out, and read their weights from a lightbert state dict, whose shapes also tell them the widths, the kernel
sizes and the groups. Read ``bert`` first; the other pages borrow its common pieces.
"""
