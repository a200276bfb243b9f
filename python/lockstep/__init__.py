"""Plans, simulates and sizes the training of large language models, as the verbs of the program `lockstep` do.

>>> import lockstep
>>> lockstep.plan(model="llama3-70b", cluster="h100:64", seq=8192, global_batch=256)

Every function takes the options of its verb as keywords, with _ for -, and returns the object that the verb prints
with --json, as a dict that draws itself in a notebook. help(lockstep.plan) lists the options.
"""

from ._answers import Answer, Backtest, Plan, Refused, Simulation
from ._questions import __version__, backtest, cluster, model, plan, simulate

__all__ = ["Answer", "Backtest", "Plan", "Refused", "Simulation", "__version__", "backtest", "cluster", "model", "plan", "simulate"]
