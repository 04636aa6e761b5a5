"""Support: what any Python program might need, and nothing of tensors.

Locks that a forked process renews, the garbage collector's pause, digests, escaping of the user's
names in generated text, interrupts, and the user's line that built an op. Imports the standard
library alone.
"""
