"""CPU and memory benchmarks of Sluice beside a tuned HAProxy and a bare relay, in one run.

Owns the load generator, the stand-in broker and the arithmetic of the report. It runs programs and reads their CPU time
and memory; of Sluice it knows only the command line and the configuration file.
"""
