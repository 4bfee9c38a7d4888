"""The benchmark suite: workloads, the systems they are given to, and their figures."""
