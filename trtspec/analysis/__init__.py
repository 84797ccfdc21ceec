"""Pure arithmetic over counted rounds: numpy and scipy only, no I/O."""
