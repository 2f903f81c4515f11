"""How the convolutions' kernels divide the tokens of a row among threads."""
