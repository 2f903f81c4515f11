"""Each paper's forward pass as pure functions in one file. Read these first: ``nn`` is tested against them.

The functions follow the equations in the simplest PyTorch. They don't use ``ops`` or ``nn``, have no dropout, and take
the weights from a lightbert state dict, whose shapes determine widths, kernel sizes and groups. Start with ``bert``;
the other files import its functions.
"""
