"""Speed as ratios, both sides in one run. Run a script from the repository's root: python -m benchmarks.NAME"""
